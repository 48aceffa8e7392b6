"""What `brain-coord serve` runs with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from platformdirs import user_data_path

from brain_coord.classes.assembly import ClassSettings
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.fleet.addresses import AddressLimits
from brain_coord.gateway.generation import GatewaySettings
from brain_coord.gateway.guard import ConnectionBounds
from brain_coord.gateway.limits import DEFAULT_PLANS, PlanLimits
from brain_coord.probes.pace import ProbeSettings
from brain_coord.routing.vocabulary import CommunityFirst, Plan
from brain_coord.store.store import StoreOptions
from brain_node.contract.limits import HEARTBEAT_S, PING_S, SPARE_SLOTS

DEFAULT_PORT: Final = 8470
DEFAULT_QUEUE: Final = 512

LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where requests go as OpenTelemetry traces.

    Attributes:
        otlp_url: an OTLP endpoint over HTTP; `None` for no traces.
        share: of requests that are traced, 0 to 1.
    """

    otlp_url: str | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting; times in seconds. Those in `FIXED` hold until the process ends, all others can be reloaded."""

    data_dir: Path = field(default_factory=lambda: user_data_path("brain-coord"))
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    root_path: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    store_url: str | None = field(default=None, repr=False)
    catalog: Path | None = None
    community_first: CommunityFirst = CommunityFirst.FREE
    token_required: bool = True
    heartbeat_s: float = HEARTBEAT_S
    ping_s: float = PING_S
    spare_slots: int = SPARE_SLOTS
    queue_limit: int = DEFAULT_QUEUE
    drain_s: float = 30.0
    plans: Mapping[Plan, PlanLimits] = field(default_factory=lambda: DEFAULT_PLANS)
    connections: ConnectionBounds = field(default_factory=ConnectionBounds)
    classes: ClassSettings = field(default_factory=ClassSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    addresses: AddressLimits = field(default_factory=AddressLimits)
    bind_slots: bool = True
    tokenizers: Path | None = None
    store: StoreOptions = field(default_factory=StoreOptions)
    cluster: ClusterSettings | None = None
    tracing: TracingSettings = field(default_factory=TracingSettings)
    log_level: LogLevel = "info"
    log_json: bool | None = None


FIXED: Final = {
    "data_dir": "--data-dir",
    "host": "[server] host",
    "port": "[server] port",
    "root_path": "[server] root_path",
    "trusted_proxies": "[server] trusted_proxies",
    "store_url": "[store] url_file",
    "store": "[store]",
    "cluster": "[cluster]",
    "catalog": "[routing] catalog",
    "heartbeat_s": "[join] heartbeat_s",
    "ping_s": "[join] ping_s",
    "spare_slots": "[join] spare_slots",
    "tokenizers": "[measure] tokenizers",
    "tracing": "[tracing]",
    "log_level": "[log] level",
    "log_json": "[log] json",
}
"""Settings that cannot change while the coordinator runs, and where they stand."""


def restart_needed(running: Settings, wanted: Settings) -> tuple[Settings, list[str]]:
    """The settings that can be had at once, and where the others stand."""
    kept = {name: getattr(running, name) for name in FIXED if getattr(running, name) != getattr(wanted, name)}
    names = [FIXED[name] for name in kept]
    settings = replace(wanted, **kept)
    if (running.tls_cert is None) != (wanted.tls_cert is None):
        names.append("[server] tls_cert")
        settings = replace(settings, tls_cert=running.tls_cert, tls_key=running.tls_key)
    if running.gateway.body_bytes != wanted.gateway.body_bytes:
        names.append("[limits] body_mib")  # nodes were told it when they joined
        settings = replace(settings, gateway=replace(settings.gateway, body_bytes=running.gateway.body_bytes))
    return settings, names
