"""The tables of the configuration file about nodes: which models they may serve, how they join, what they are asked."""

from pathlib import Path
from typing import Final

from pydantic import Field

from brain_coord.config.values import Count, Share, Table
from brain_coord.fleet.addresses import AddressLimits
from brain_coord.probes.pace import ProbeSettings
from brain_coord.routing.vocabulary import CommunityFirst
from brain_node.contract.limits import HEARTBEAT_S, PING_S, SPARE_SLOTS

_ADDRESSES: Final = AddressLimits()
_PROBES: Final = ProbeSettings()


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
