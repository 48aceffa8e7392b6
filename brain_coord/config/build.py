"""From checked tables to settings: secrets are read, files that are named must be there."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from brain_coord.classes.assembly import ClassSettings
from brain_coord.classes.breaker import BreakerRules
from brain_coord.classes.prices import Prices
from brain_coord.classes.upstream import Offer, UpstreamSpec
from brain_coord.classes.upstream_http import HTTP_PROXIES, proxy_of
from brain_coord.cluster.secret import LEAST_CHARS, ClusterSecret
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.config.faults import ConfigError, Fault, Where, split
from brain_coord.config.file import CLUSTER_SECRET, CLUSTER_URL, DATABASE_URL
from brain_coord.config.server_tables import ClusterTable, Tracing
from brain_coord.config.tables import Config
from brain_coord.config.upstream_tables import UpstreamTable
from brain_coord.config.values import KIB, MIB
from brain_coord.fleet.addresses import AddressLimits
from brain_coord.gateway.attempts import Limits
from brain_coord.gateway.generation import GatewaySettings
from brain_coord.gateway.guard import ConnectionBounds
from brain_coord.gateway.limits import PlanLimits
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.probes.pace import ProbeSettings
from brain_coord.routing.vocabulary import Plan
from brain_coord.settings import Settings, TracingSettings
from brain_coord.store.database import postgres_url
from brain_coord.store.errors import StoreError
from brain_coord.store.store import StoreOptions
from brain_node.contract.secret_file import read_private


class _Builder:
    """Collects faults, so that one check tells all of them."""

    def __init__(self, folder: Path, environ: Mapping[str, str], source_of: Callable[[Where], str]) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[str] = []
        self._folder = folder
        self._environ = environ
        self._source_of = source_of

    def fault(self, where: Where, message: str) -> None:
        self.faults.append(Fault(self._source_of(where), *split(where), message))

    def path(self, value: Path | None) -> Path | None:
        """A path of the file is taken from the file's folder."""
        return None if value is None else self._folder / value.expanduser()

    def file(self, where: Where, value: Path | None) -> Path | None:
        """A file that must be there."""
        path = self.path(value)
        if path is not None and not path.is_file():
            self.fault(where, f"there is no file {path}")
        return path

    def folder(self, where: Where, value: Path | None) -> Path | None:
        """A folder that must be there."""
        path = self.path(value)
        if path is not None and not path.is_dir():
            self.fault(where, f"there is no folder {path}")
        return path

    def secret(self, where: Where, value: Path | None) -> str | None:
        """The content of a file that holds a secret."""
        path = self.path(value)
        if path is None:
            return None
        try:
            text, loose = read_private(path)
        except (OSError, UnicodeDecodeError) as error:
            self.fault(
                where, f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else 'not a text'}"
            )
            return None
        if loose:
            self.warnings.append(f"{path} could be read by others: permissions tightened to 0600")
        if not text.strip():
            self.fault(where, f"{path} is empty")
        return text.strip() or None

    def upstream(self, where: Where, table: UpstreamTable) -> UpstreamSpec:
        key = self.secret((*where, "api_key_file"), table.api_key_file)
        if table.api_key_env is not None:
            key = self._environ.get(table.api_key_env) or None
            if key is None:
                self.fault((*where, "api_key_env"), f"the environment variable {table.api_key_env} is not set")
        if key is not None and not (key.isascii() and key.isprintable()):
            self.fault(
                (*where, "api_key_file" if table.api_key_file else "api_key_env"), "holds more than one line, or no key"
            )
        if table.auth == "x-api-key" and key is None:
            self.fault((*where, "auth"), "is x-api-key, but there is no key; set api_key_file or api_key_env")
        proxy = proxy_of(table.url)
        if proxy is not None and not proxy.startswith(HTTP_PROXIES):
            self.warnings.append(f"the proxy for upstream {table.name} is not an HTTP proxy: nothing will reach it")
        return UpstreamSpec(
            name=table.name,
            base_url=table.url,
            offers={model: _offer(table, model) for model in table.models},
            routes=frozenset(table.routes),
            slots=table.slots,
            api_key=key,
            auth=table.auth,
            region=table.region,
            probe_s=table.probe_s,
            trust=self.trust((*where, "ca_file"), table.ca_file),
        )

    def cluster(self, table: ClusterTable, store_url: str | None) -> ClusterSettings | None:
        """The cluster that the coordinator belongs to; `None` when it runs alone."""
        url = self._environ.get(CLUSTER_URL) or self.secret(("cluster", "url_file"), table.url_file)
        secret = self._environ.get(CLUSTER_SECRET) or self.secret(("cluster", "secret_file"), table.secret_file)
        if url is None:
            if table.address is not None or secret is not None:
                self.warnings.append(f"[cluster] names no url_file and {CLUSTER_URL} is not set: it runs alone")
            return None
        scheme, _, rest = url.partition("://")
        scheme = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
        if scheme not in ("redis", "rediss", "unix") or not rest:
            self.fault(("cluster", "url_file"), "must hold a redis://, rediss:// or unix:// URL")
        if secret is None or len(secret) < LEAST_CHARS:
            self.fault(("cluster", "secret_file"), f"must hold a secret of at least {LEAST_CHARS} characters")
        if table.address is None:
            self.fault(("cluster", "address"), "is missing: the other coordinators have to reach this one")
        if store_url is None:
            self.fault(("store", "url_file"), "is missing: the coordinators of a cluster share a PostgreSQL store")
        if find_spec("redis") is None:
            self.fault(("cluster",), "needs a package that is not installed: pip install 'brain-node[cluster]'")
        return ClusterSettings(
            url=f"{scheme}://{rest}",
            name=table.name,
            address=table.address or "",
            secret=ClusterSecret(secret or ""),
            beat_s=min(1.0, table.ttl_s / 5),
            ttl_s=table.ttl_s,
            leave_s=table.leave_s,
            ca_file=self.file(("cluster", "ca_file"), table.ca_file),
        )

    def tracing(self, table: Tracing) -> TracingSettings:
        if table.otlp_url is not None and not _has_package("opentelemetry.sdk"):
            self.fault(("tracing", "otlp_url"), "needs the extra `otel`: pip install 'brain-node[coord,otel]'")
        return TracingSettings(table.otlp_url, table.share)

    def trust(self, where: Where, value: Path | None) -> ssl.SSLContext | None:
        path = self.file(where, value)
        if path is None or not path.is_file():
            return None
        try:
            return ssl.create_default_context(cafile=path)
        except (OSError, ssl.SSLError):
            self.fault(where, f"{path} holds no certificate (PEM)")
            return None

    def check_store(self, url: str, *, from_environment: bool) -> None:
        """The database's URL must be one, wherever it comes from."""
        try:
            postgres_url(url)
        except StoreError as error:
            if from_environment:
                self.faults.append(Fault(f"environment {DATABASE_URL}", None, None, error.message))
            else:
                self.fault(("store", "url_file"), error.message)

    def check_pair(self, cert: Path | None, key: Path | None) -> None:
        """Certificate and key must be usable now, not at the first connection."""
        if cert is None or key is None or not (cert.is_file() and key.is_file()):
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
        except (OSError, ssl.SSLError):
            self.fault(("server", "tls_key"), f"{key} is not the private key (PEM, without a password) of {cert}")


def _has_package(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _offer(table: UpstreamTable, model: str) -> Offer:
    entry = table.models[model]

    def own(name: str) -> Any:
        value = getattr(entry, name)
        return getattr(table, name) if value is None else value

    prices = Prices(own("prompt_usd_per_1m"), own("completion_usd_per_1m"))
    return Offer(model, entry.served or model, prices, own("quality"))


def settings_of(
    config: Config,
    data_dir: Path,
    folder: Path,
    store_url: str | None,
    environ: Mapping[str, str],
    source_of: Callable[[Where], str],
) -> tuple[Settings, list[str]]:
    """The settings, and warnings.

    Args:
        config: the tables.
        data_dir: the coordinator's folder.
        folder: of the file; relative paths start there.
        store_url: of the environment.
        environ: the process environment, for keys of upstreams.
        source_of: names the source of a value.

    Raises:
        ConfigError: a file that is named is not there or not usable.
    """
    builder = _Builder(folder, environ, source_of)
    url = store_url or builder.secret(("store", "url_file"), config.store.url_file)
    if url is not None:
        builder.check_store(url, from_environment=store_url is not None)
    server, limits, deadlines, join = config.server, config.limits, config.deadlines, config.join
    if store_url is not None and config.store.url_file is not None:
        builder.warnings.append("the database's URL of the environment is used, not that of [store] url_file")
    settings = Settings(
        data_dir=data_dir,
        host=server.host,
        port=server.port,
        root_path=server.root_path,
        tls_cert=builder.file(("server", "tls_cert"), server.tls_cert),
        tls_key=builder.file(("server", "tls_key"), server.tls_key),
        trusted_proxies=server.trusted_proxies,
        store_url=url,
        cluster=builder.cluster(config.cluster, url),
        catalog=builder.file(("routing", "catalog"), config.routing.catalog),
        community_first=config.routing.community_first,
        token_required=join.token_required,
        heartbeat_s=join.heartbeat_s,
        ping_s=join.ping_s,
        spare_slots=join.spare_slots,
        queue_limit=config.queue.limit,
        drain_s=server.drain_s,
        plans={
            Plan.FREE: PlanLimits(**config.plans.free.model_dump()),
            Plan.PAID: PlanLimits(**config.plans.paid.model_dump()),
        },
        connections=ConnectionBounds(
            connections=limits.connections,
            head_bytes=limits.head_kib * KIB,
            headers=limits.headers,
            head_s=limits.head_s,
            idle_s=limits.idle_s,
            stall_s=config.streams.stall_s,
        ),
        classes=ClassSettings(
            cloud=tuple(builder.upstream(("cloud", at), table) for at, table in enumerate(config.cloud)),
            external=tuple(builder.upstream(("external", at), table) for at, table in enumerate(config.external)),
            breaker=BreakerRules(**config.breaker.model_dump()),
        ),
        gateway=GatewaySettings(
            limits=Limits(
                phases=PhaseLimits(
                    accept_s=deadlines.accept_s,
                    first_output_s=deadlines.first_output_s,
                    between_events_s=deadlines.between_events_s,
                    slowest_tok_s=deadlines.slowest_tok_s,
                ),
                whole_s=deadlines.whole_s,
                attempts=deadlines.attempts,
            ),
            queue_s=config.queue.wait_s,
            keepalive_s=config.streams.keepalive_s,
            body_bytes=limits.body_mib * MIB,
            bodies_bytes=limits.bodies_mib * MIB,
            body_idle_s=limits.body_idle_s,
            body_bytes_per_s=limits.body_kib_per_s * KIB,
            cors_origins=server.cors_origins,
        ),
        store=replace(
            StoreOptions(),
            on_store_failure=config.store.on_failure,
            timeout_s=config.store.timeout_s,
            spool_limit_bytes=config.store.spool_mib * MIB,
            receipts_days=config.store.receipts_days,
        ),
        probes=ProbeSettings(**config.measure.model_dump(exclude={"tokenizers"})),
        addresses=AddressLimits(
            sessions=join.nodes_per_address,
            new_ids_a_day=join.new_nodes_per_day,
            attempts_a_minute=join.handshakes_per_min,
            exempt_loopback=not join.limit_loopback,
        ),
        bind_slots=join.bind_slots,
        tokenizers=builder.folder(("measure", "tokenizers"), config.measure.tokenizers),
        tracing=builder.tracing(config.tracing),
        log_level=config.log.level,
        log_json=config.log.as_json,
    )
    builder.check_pair(settings.tls_cert, settings.tls_key)
    if builder.faults:
        raise ConfigError(builder.faults)
    return settings, builder.warnings
