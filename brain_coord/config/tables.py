"""The tables of the configuration file, each key with its bounds and its default."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from brain_coord.classes.breaker import BreakerRules
from brain_coord.classes.upstream import Auth
from brain_coord.cluster.secret import LEAST_CHARS
from brain_coord.fleet.addresses import AddressLimits
from brain_coord.gateway.attempts import Limits
from brain_coord.gateway.dialects import DIALECTS
from brain_coord.gateway.generation import GatewaySettings
from brain_coord.gateway.guard import ConnectionBounds
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.probes.pace import ProbeSettings
from brain_coord.routing.vocabulary import CommunityFirst, Plan
from brain_coord.settings import DEFAULT_PORT, DEFAULT_QUEUE
from brain_coord.store.store import StoreOptions
from brain_node.contract.limits import HEARTBEAT_S, PING_S, SPARE_SLOTS

MIB: Final = 1024 * 1024
KIB: Final = 1024

_GATEWAY: Final = GatewaySettings()
_LIMITS: Final = Limits()
_BOUNDS: Final = ConnectionBounds()
_BREAKER: Final = BreakerRules()
_STORE: Final = StoreOptions()
_ADDRESSES: Final = AddressLimits()
_PROBES: Final = ProbeSettings()

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Rate = Annotated[int, Field(ge=1, le=100_000_000, description="requests a minute, and the most at once")]
Concurrent = Annotated[int, Field(ge=1, le=1_000_000, description="requests at a time, waiting ones included")]
QueueShare = Annotated[float, Field(gt=0, le=1, description="part of the queue that one key may fill")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _texts(value: Any) -> Any:
    """A list, or from the environment one text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class Table(BaseModel):
    """A table of the file. Keys that it does not know are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Server(Table):
    """`[server]`: where the coordinator listens, and for whom."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 or :: for every network")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="port; 0 takes a free one")
    root_path: str = Field("", description="path prefix that a proxy in front keeps, such as /brain")
    tls_cert: Path | None = Field(None, description="certificate chain (PEM); with tls_key it serves https")
    tls_key: Path | None = Field(None, description="private key of tls_cert (PEM)")
    trusted_proxies: Texts = Field((), description="addresses or networks whose forwarded headers count")
    cors_origins: Texts = Field((), description="origins whose pages may call the API; `*` for every one")
    drain_s: float = Field(30.0, ge=0, le=86_400, description="how long streams may go on when it stops")

    @field_validator("root_path")
    @classmethod
    def _prefix(cls, value: str) -> str:
        value = value.rstrip("/")
        if value and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", value):
            raise ValueError("must be a path such as /brain")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                if each != "*":
                    ip_network(each)
            except ValueError:
                raise ValueError("must hold addresses or networks such as 10.0.0.0/8, or *") from None
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ValueError("must hold origins such as https://app.example.com, or *")
        return value

    @model_validator(mode="after")
    def _both(self) -> "Server":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together; only one of them is set")
        return self


class StoreTable(Table):
    """`[store]`: where receipts and keys are kept, and what happens while that fails."""

    url_file: Path | None = Field(None, description="file with a postgresql:// URL; without one SQLite is used")
    on_failure: Literal["spool", "refuse"] = Field(
        _STORE.on_store_failure, description="while the store is away: keep receipts on disk, or refuse requests"
    )
    timeout_s: Seconds = Field(_STORE.timeout_s, description="after this the store counts as away")
    receipts_days: float = Field(
        _STORE.receipts_days, ge=0, le=36_500, description="for how many days receipts are kept; 0 for ever"
    )
    spool_mib: int = Field(_STORE.spool_limit_bytes // MIB, ge=1, le=1_000_000, description="most that is kept on disk")


class ClusterTable(Table):
    """`[cluster]`: several coordinators as one; see "Several coordinators" in the README."""

    url_file: Path | None = Field(
        None, description="file with the redis:// URL that all coordinators share; without one it runs alone"
    )
    secret_file: Path | None = Field(
        None, description=f"file with the secret that all coordinators share, at least {LEAST_CHARS} characters"
    )
    name: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
        description="this coordinator's own name; default: that of its receipt chain",
    )
    address: str | None = Field(None, description="where the others reach this one, such as http://10.0.0.2:8470")
    ca_file: Path | None = Field(None, description="private CA of the others' certificates (PEM)")
    ttl_s: float = Field(6.0, ge=1, le=300, description="a coordinator that was not heard for so long counts as gone")
    leave_s: float = Field(
        5.0, ge=0, le=300, description="how long it answers after /readyz says that it leaves; for the load balancer"
    )

    @field_validator("address")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "")
        if value is not None and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username):
            raise ValueError("must be an http:// or https:// address")
        return None if value is None else value.rstrip("/")


class Routing(Table):
    """`[routing]`: rules of the operator."""

    community_first: CommunityFirst = Field(
        CommunityFirst.FREE, description="for whom a PUBLIC request in AUTO takes a Brain Node first"
    )
    catalog: Path | None = Field(None, description="model allowlist instead of the shipped one")


class Join(Table):
    """`[join]`: how nodes join."""

    token_required: bool = Field(default=True, description="whether a node needs a join token the first time")
    heartbeat_s: float = Field(HEARTBEAT_S, ge=1, le=300, description="period of heartbeats")
    ping_s: float = Field(PING_S, ge=1, le=300, description="period of RTT pings; keep it below the proxy's idle limit")
    spare_slots: int = Field(SPARE_SLOTS, ge=0, le=64, description="idle slot connections that a node keeps open")
    nodes_per_address: Count = Field(_ADDRESSES.sessions, description="nodes connected from one address at a time")
    new_nodes_per_day: Count = Field(_ADDRESSES.new_ids_a_day, description="new nodes from one address a day")
    handshakes_per_min: Count = Field(_ADDRESSES.attempts_a_minute, description="link handshakes from one address")
    limit_loopback: bool = Field(
        default=not _ADDRESSES.exempt_loopback, description="whether these three hold for loopback too"
    )
    bind_slots: bool = Field(
        default=True,
        description="whether slots must come from the address of their link; not for nodes behind two lines",
    )


class Measure(Table):
    """`[measure]`: what the coordinator asks nodes on its own account."""

    canary_s: float = Field(_PROBES.canary_s, ge=0, le=604_800, description="between canaries of a node; 0 for none")
    canary_jobs: int = Field(_PROBES.canary_jobs, ge=0, description="jobs after which one is due as well; 0 for none")
    shadow_share: Share = Field(
        _PROBES.shadow_share,
        description="share of PUBLIC temperature-0 jobs that a second node is asked too; 0 for none",
    )
    closer_share: Share = Field(_PROBES.closer_share, description="the same for new nodes and those in doubt")
    tokenizers: Path | None = Field(
        None, description="folder with MODEL-ID/tokenizer.json, for exact token counts (extra `tokenizers`)"
    )


class LimitsTable(Table):
    """`[limits]`: what a request may cost before it is admitted."""

    body_mib: int = Field(_GATEWAY.body_bytes // MIB, ge=1, le=1024, description="largest request body")
    bodies_mib: int = Field(
        _GATEWAY.bodies_bytes // MIB,
        ge=1,
        le=1_000_000,
        description="for all bodies above 64 KiB that are held at a time; several of one key leave as much free",
    )
    body_idle_s: Seconds = Field(_GATEWAY.body_idle_s, description="the most between two pieces of a body")
    body_kib_per_s: float = Field(
        _GATEWAY.body_bytes_per_s / KIB, gt=0, le=1_000_000, description="what a body must keep up after that"
    )
    connections: Count = Field(_BOUNDS.connections, description="most HTTP connections; nodes are not counted")
    head_kib: int = Field(_BOUNDS.head_bytes // KIB, ge=4, le=1024, description="largest request line with headers")
    headers: int = Field(_BOUNDS.headers, ge=16, le=1000, description="most headers")
    head_s: Seconds = Field(_BOUNDS.head_s, description="the most that a head may take")
    idle_s: Seconds = Field(_BOUNDS.idle_s, description="how long a connection may be idle")

    @model_validator(mode="after")
    def _fits(self) -> "LimitsTable":
        if self.bodies_mib < self.body_mib:
            raise ValueError("bodies_mib is less than body_mib, so that the largest body could never come")
        return self


class Deadlines(Table):
    """`[deadlines]`: how long each phase of a request may take."""

    accept_s: Seconds = Field(_LIMITS.phases.accept_s, description="until a target has taken the job")
    first_output_s: Seconds = Field(_LIMITS.phases.first_output_s, description="until its first output")
    between_events_s: Seconds = Field(_LIMITS.phases.between_events_s, description="between two events of a stream")
    slowest_tok_s: float = Field(
        _LIMITS.phases.slowest_tok_s,
        gt=0,
        le=100_000,
        description="an answer that is not streamed gets first_output_s, and the time for its tokens at this speed",
    )
    whole_s: Seconds = Field(_LIMITS.whole_s, description="for the whole request")
    attempts: int = Field(_LIMITS.attempts, ge=1, le=10, description="targets that are tried for one request")


class Queue(Table):
    """`[queue]`: waiting for a free slot."""

    limit: Count = Field(DEFAULT_QUEUE, description="requests that may wait at a time")
    wait_s: float = Field(_GATEWAY.queue_s, ge=0, le=3600, description="how long each may wait")


class Streams(Table):
    """`[streams]`: clients of streamed answers."""

    keepalive_s: Seconds = Field(_GATEWAY.keepalive_s, description="a comment is sent when nothing was for this long")
    stall_s: Seconds = Field(_BOUNDS.stall_s, description="a client that reads nothing for this long is cut off")


class FreePlan(Table):
    """`[plans.free]`: what each key on the free plan may do."""

    requests_per_min: Rate = DEFAULT_PLANS[Plan.FREE].requests_per_min
    concurrent: Concurrent = DEFAULT_PLANS[Plan.FREE].concurrent
    queue_share: QueueShare = DEFAULT_PLANS[Plan.FREE].queue_share


class PaidPlan(Table):
    """`[plans.paid]`: what each key on the paid plan may do."""

    requests_per_min: Rate = DEFAULT_PLANS[Plan.PAID].requests_per_min
    concurrent: Concurrent = DEFAULT_PLANS[Plan.PAID].concurrent
    queue_share: QueueShare = DEFAULT_PLANS[Plan.PAID].queue_share


class Plans(Table):
    """`[plans]`."""

    free: FreePlan = FreePlan()
    paid: PaidPlan = PaidPlan()


class BreakerTable(Table):
    """`[breaker]`: when a target that fails is passed over, and for how long."""

    faults: int = Field(_BREAKER.faults, ge=1, le=1000, description="faults in a row that pause a target")
    first_open_s: Seconds = Field(_BREAKER.first_open_s, description="first pause; each further one twice as long")
    max_open_s: Seconds = Field(_BREAKER.max_open_s, description="longest pause")
    probe_s: Seconds = Field(_BREAKER.probe_s, description="how long the one request that tries it keeps others out")

    @model_validator(mode="after")
    def _grows(self) -> "BreakerTable":
        if self.max_open_s < self.first_open_s:
            raise ValueError("max_open_s is less than first_open_s")
        return self


class Log(Table):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is written")
    as_json: bool | None = Field(None, alias="json", description="JSON lines; default: JSON off a terminal")


class Tracing(Table):
    """`[tracing]`: requests as OpenTelemetry traces (extra `otel`)."""

    otlp_url: str | None = Field(None, description="OTLP endpoint over HTTP, to which traces are sent; none by default")
    share: Share = Field(1.0, description="share of requests that are traced")

    @field_validator("otlp_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/\s]+/\S*", value):
            raise ValueError("must be an address such as http://127.0.0.1:4318/v1/traces")
        return value


class ModelEntry(Table):
    """One model of an upstream, where its name or its price differs."""

    served: str | None = None
    prompt_usd_per_1m: Price | None = None
    completion_usd_per_1m: Price | None = None
    quality: Share | None = None


def _models(value: Any) -> Any:
    """A list of names, or a table from our name to its name or to a table."""
    if isinstance(value, list):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("must be a list of model names, or a table from our names to its names")
        if len(set(value)) < len(value):
            raise ValueError("names a model twice")
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {"served": entry} if isinstance(entry, str) else entry for name, entry in value.items()}
    raise ValueError("must be a list of model names, or a table from our names to its names")


_ALL_ROUTES: Final = tuple(DIALECTS)


class UpstreamTable(Table):
    """`[[cloud]]` and `[[external]]`: one upstream."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="how it is called in answers, receipts and logs"
    )
    url: str = Field(description="address without a key, as OpenAI clients take it; a bare host gets /v1")
    api_key_file: Path | None = Field(None, description="file that holds the API key")
    api_key_env: str | None = Field(None, description="environment variable that holds the API key")
    auth: Auth = Field(
        "bearer", description="how the key is sent: `bearer`, or `x-api-key` as Anthropic's API wants it"
    )
    models: Annotated[dict[str, ModelEntry], BeforeValidator(_models), Field(min_length=1, max_length=1000)] = Field(
        description="names of its models, or a table from our names to its names"
    )
    prompt_usd_per_1m: Price | None = Field(None, description="USD for a million prompt tokens; unset is unknown")
    completion_usd_per_1m: Price | None = Field(None, description="USD for a million answer tokens; unset is unknown")
    quality: Share | None = Field(None, description="quality tier, 0 to 1; unset is unknown")
    routes: Texts = Field(_ALL_ROUTES, description="API routes that it serves")
    slots: Count = Field(64, description="most requests on it at a time")
    region: str | None = Field(None, max_length=64, description="where it stands, as requests name regions")
    probe_s: float = Field(30.0, ge=0, le=86_400, description="how often it is looked at while idle; 0 for never")
    ca_file: Path | None = Field(None, description="private CA of its certificate (PEM)")

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            named = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            named = False
        if not named:
            raise ValueError("must be an http:// or https:// address")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be an address alone; a key belongs into api_key_file or api_key_env")
        return value.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")

    @field_validator("routes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or any(route not in DIALECTS for route in value):
            raise ValueError(f"must hold some of {', '.join(DIALECTS)}")
        return value

    @model_validator(mode="after")
    def _one_key(self) -> "UpstreamTable":
        if self.api_key_file is not None and self.api_key_env is not None:
            raise ValueError("api_key_file and api_key_env are both set; one is enough")
        return self


class Config(Table):
    """The whole file."""

    server: Server = Server()
    store: StoreTable = StoreTable()
    cluster: ClusterTable = ClusterTable()
    routing: Routing = Routing()
    join: Join = Join()
    measure: Measure = Measure()
    limits: LimitsTable = LimitsTable()
    deadlines: Deadlines = Deadlines()
    queue: Queue = Queue()
    streams: Streams = Streams()
    plans: Plans = Plans()
    breaker: BreakerTable = BreakerTable()
    tracing: Tracing = Tracing()
    log: Log = Log()
    cloud: tuple[UpstreamTable, ...] = ()
    external: tuple[UpstreamTable, ...] = ()

    @model_validator(mode="after")
    def _names(self) -> "Config":
        names = [upstream.name for upstream in (*self.cloud, *self.external)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the name {twice[0]} stands for more than one upstream")
        return self
