"""What tabs that hold the same stages were found to agree on, and what follows where they do not."""

import random
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import numpy as np
import structlog

from brain_coord.browser.agreement import Finding, Numbers, Question, Unanswered, compare
from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.stage_work import Floats, StageDesk
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs

log = structlog.get_logger("brain.browser")

RETRY_S: Final = 60.0
SUSPENDED_S: Final = 600.0

PROBE_TOKENS: Final = 8


@dataclass(slots=True)
class Comparisons:
    """Compares tabs, and keeps from stages those that did not agree."""

    tabs: Tabs
    desk: StageDesk
    agreed: dict[str, set[frozenset[str]]] = field(default_factory=dict)
    """By stage, the pairs of tabs that were compared and agreed."""
    _suspended: dict[tuple[str, str], float] = field(default_factory=dict)

    def suspend(self, tab: Tab, name: str, seconds: float) -> None:
        """The tab is not given this stage for so long."""
        self._suspended[tab.tab_id, name] = monotonic() + seconds

    def suspended(self, tab: Tab, name: str) -> bool:
        """Whether the tab may not have this stage now."""
        return self._suspended.get((tab.tab_id, name), 0.0) >= monotonic()

    def left(self, tab: Tab) -> None:
        """The tab is gone, and with it what was found out about what it held."""
        for name in self.agreed:
            self.forget(tab, name)
        now = monotonic()
        self._suspended = {key: until for key, until in self._suspended.items() if until > now}

    def forget(self, tab: Tab, name: str) -> None:
        """What was found out about a tab and a stage holds no more."""
        pairs = self.agreed.get(name, set())
        pairs -= {pair for pair in pairs if tab.tab_id in pair}

    def holders_of(self, stages: Iterable[Stage], without: Sequence[Tab]) -> list[Tab]:
        """Tabs that hold all of these and could be asked now, in an order that nobody can foresee."""
        names = {stage.name for stage in stages}
        found = [tab for tab in self.tabs.online if names <= tab.stages and tab not in without and tab.free > 0]
        random.SystemRandom().shuffle(found)
        return found

    def twins(self, stage: Stage, tab_id: str) -> list[str]:
        """The tabs whose results for a stage were compared with this one's and agreed."""
        return sorted(
            other for pair in self.agreed.get(stage.name, set()) if tab_id in pair for other in pair - {tab_id}
        )

    async def passes(self, model: BrowserModel, stage: Stage, one: Tab, two: Tab) -> bool:
        """Compare a replica with who holds the stage, on activations that neither can have seen."""
        question = Question(model, (stage,), probe(model, stage))
        try:
            finding = await compare(self.desk, question, one, two, self.holders_of((stage,), (one, two)))
        except Unanswered as fault:
            self._unanswered(fault, question)
            self.suspend(two, stage.name, RETRY_S)
            return False
        await self._take(finding, question, one, two)
        return finding.reason is None or finding.wrong is one

    async def look_again(self, tab: Tab, other: Tab, question: Question, known: Numbers, story: dict[str, Any]) -> None:
        """Compare what a tab made of a running answer with what another makes of it; `story` is filled in for the receipt."""
        thirds = self.holders_of(question.stages, (tab, other))
        try:
            finding = await compare(self.desk, question, tab, other, thirds, known)
        except Unanswered as fault:
            self._unanswered(fault, question)
            return
        story |= {"with": other.tab_id, "result": "agreed" if finding.reason is None else "differed"}
        if finding.wrong is not None and finding.third is not None:
            story |= {"wrong": finding.wrong.tab_id, "settled_by": finding.third.tab_id}
        await self._take(finding, question, tab, other)

    def _unanswered(self, fault: Unanswered, question: Question) -> None:
        """A tab that answers customers and not the comparison must not stand better for it."""
        log.warning(
            "tab not compared", stages=question.name, tab=fault.tab.tab_id, cause=fault.cause, reason=str(fault)
        )
        if fault.blame:
            result = "timed_out" if fault.cause == "timeout" else "failed"
            self.tabs.outcome(fault.tab, result, "shadow", fault.cause)

    async def _take(self, finding: Finding, question: Question, one: Tab, two: Tab) -> None:
        """What a comparison means for the tabs."""
        if finding.reason is None:
            self._agree(question, one, two)
        elif finding.wrong is not None and finding.third is not None:
            right = two if finding.wrong is one else one
            self._agree(question, right, finding.third)
            reason = f"{question.name}: {finding.reason}; a third tab bears out the other"
            self.tabs.outcome(finding.wrong, "mismatched", "shadow", reason)
            for stage in question.stages:
                self.forget(finding.wrong, stage.name)
            await self.tabs.caught(finding.wrong, reason)
            await self.desk.drop(finding.wrong, [stage.name for stage in question.stages], None)
            self.tabs.capacity()
        else:
            await self._stop_pair(finding.reason, question, one, two)

    def _agree(self, question: Question, one: Tab, two: Tab) -> None:
        for stage in question.stages:
            self.agreed.setdefault(stage.name, set()).add(frozenset({one.tab_id, two.tab_id}))
        for tab in (one, two):
            self.tabs.outcome(tab, "matched", "shadow")

    async def _stop_pair(self, reason: str, question: Question, one: Tab, two: Tab) -> None:
        """Two words against each other: neither serves these stages until others have taken them."""
        log.warning("tabs disagree", stages=question.name, tabs=[one.tab_id, two.tab_id], reason=reason)
        names = [stage.name for stage in question.stages]
        for tab in (one, two):
            for name in names:
                tab.stages.discard(name)
                self.forget(tab, name)
                self.suspend(tab, name, SUSPENDED_S)
            await self.tabs.tell(tab, "disagreement", f"{question.name}: {reason}")
            await self.desk.drop(tab, names, None)
        self.tabs.capacity()


def probe(model: BrowserModel, stage: Stage) -> Floats:
    """Activations that nobody can have seen: of random tokens for the first stage, random ones for the others."""
    rng = np.random.default_rng(secrets.randbits(128))
    if stage.first == 0:
        return model.embeddings([int(token) for token in rng.integers(0, model.config.vocab_size, PROBE_TOKENS)])
    return rng.standard_normal((PROBE_TOKENS, model.config.hidden_size), dtype=np.float32)
