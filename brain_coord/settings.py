"""What `brain-coord serve` runs with."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from platformdirs import user_data_path

from brain_coord.gateway.generation import GatewaySettings
from brain_coord.routing.vocabulary import CommunityFirst
from brain_coord.store.store import StoreOptions
from brain_node.contract.limits import HEARTBEAT_S, PING_S, SPARE_SLOTS

DEFAULT_PORT: Final = 8470


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting; times in seconds."""

    data_dir: Path = field(default_factory=lambda: user_data_path("brain-coord"))
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    root_path: str = ""
    store_url: str | None = None
    catalog: Path | None = None
    community_first: CommunityFirst = CommunityFirst.FREE
    token_required: bool = True
    heartbeat_s: float = HEARTBEAT_S
    ping_s: float = PING_S
    spare_slots: int = SPARE_SLOTS
    queue_limit: int = 256
    drain_s: float = 30.0
    trusted_proxies: tuple[str, ...] = ()
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    store: StoreOptions = field(default_factory=StoreOptions)
