"""A tab as /network shows it, beside nodes: claims apart from what was measured and verified here."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from brain_coord.browser.tab import Tab
from brain_coord.fleet.scores import explained
from brain_coord.receipts.body import timestamp


@dataclass(frozen=True, slots=True)
class TabRow:
    """One row; what was never measured is `None` and shown as UNKNOWN."""

    tab_id: str
    state: str
    why: str | None
    banned: bool
    active: int
    slots: int
    stages: tuple[str, ...]
    loading: str | None
    mops_s: float | None
    rtt_ms: float | None
    reliability: int
    units: int
    tokens: int
    refused: int
    adapter: str | None
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class TabPage:
    """One tab's page.

    Attributes:
        row: as in the list.
        first_seen: when it first came.
        strikes: how often it was caught.
        speeds: decode speed by stage, of answers that it had a part in.
        operations: that were checked.
        explanation: its score, term by term, with its events.
    """

    row: TabRow
    first_seen: str | None
    strikes: int
    speeds: tuple[tuple[str, float], ...]
    operations: int
    explanation: dict[str, Any]


def tab_rows(tabs: Iterable[Tab]) -> list[TabRow]:
    """Tabs that are here, by id, and those that were caught or banned and left within the time they have to wait."""
    now, now_s = monotonic(), time.time()
    return [_row(tab, now, now_s) for tab in sorted(shown(tabs, now), key=lambda tab: tab.tab_id)]


def shown(tabs: Iterable[Tab], now: float) -> list[Tab]:
    """The tabs that a list of them shows."""
    return [tab for tab in tabs if tab.connected or tab.why_aside(now) is not None]


def tab_page(tab: Tab) -> TabPage:
    """Everything about one tab that anybody may see."""
    now_s = time.time()
    return TabPage(
        row=_row(tab, monotonic(), now_s),
        first_seen=None if tab.first_seen_s is None else timestamp(tab.first_seen_s),
        strikes=tab.strikes.count,
        speeds=tuple((stage, round(tok_s, 2)) for stage, tok_s in sorted(tab.tok_s.items())),
        operations=tab.verified.operations,
        explanation=explained(tab.standing, now_s),
    )


def _row(tab: Tab, now: float, now_s: float) -> TabRow:
    return TabRow(
        tab_id=tab.tab_id,
        state=str(tab.liveness(now)),
        why=tab.why_aside(now) or (None if tab.ops_s is not None or not tab.connected else "not measured yet"),
        banned=tab.banned is not None,
        active=tab.active,
        slots=tab.slots,
        stages=tuple(sorted(tab.stages)),
        loading=tab.loading,
        mops_s=None if tab.ops_s is None else round(tab.ops_s / 1e6, 1),
        rtt_ms=tab.rtt.rtt_ms,
        reliability=tab.standing.score(now_s),
        units=tab.verified.units,
        tokens=tab.verified.tokens,
        refused=tab.verified.refused,
        adapter=next((gpu.name for gpu in tab.report.gpus if gpu.name), None),
        memory_mib=tab.memory_mib,
    )
