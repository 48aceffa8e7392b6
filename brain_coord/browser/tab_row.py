"""A tab as /network shows it, beside nodes: claims apart from what was measured and verified here."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

from brain_coord.browser.tab import Tab


@dataclass(frozen=True, slots=True)
class TabRow:
    """One row; what was never measured is `None` and shown as UNKNOWN."""

    tab_id: str
    state: str
    why: str | None
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


def tab_rows(tabs: Iterable[Tab]) -> list[TabRow]:
    """Tabs that are here, by id, and those that were caught and left within the hour they have to wait."""
    now, now_s = monotonic(), time.time()
    shown = [tab for tab in tabs if tab.connected or tab.strikes.holds(now) is not None]
    return [_row(tab, now, now_s) for tab in sorted(shown, key=lambda tab: tab.tab_id)]


def _row(tab: Tab, now: float, now_s: float) -> TabRow:
    return TabRow(
        tab_id=tab.tab_id,
        state=str(tab.liveness(now)),
        why=tab.strikes.holds(now) or (None if tab.ops_s is not None or not tab.connected else "not measured yet"),
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
