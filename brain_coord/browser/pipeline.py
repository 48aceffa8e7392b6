"""One answer on its way through the tabs that hold a model's stages; when one leaves, its part moves and is made anew."""

import asyncio
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import numpy as np
import structlog

from brain_coord.browser.agreement import CHUNK, Numbers
from brain_coord.browser.holders import StageKeeper
from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.sampling import TOP, Top
from brain_coord.browser.spot_check import CHANCE, WITHIN_TOKENS, SpotCheck, wanted
from brain_coord.browser.stage_work import Floats, Span, activations, best_of
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault
from brain_coord.routing.inputs import ModelNeed, NodeRequest
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node

log = structlog.get_logger("brain.browser")

MOVE_S: Final = 30.0
"""How long an answer waits for another tab to take a stage."""

MOST_MOVES: Final = 3


@dataclass(slots=True)
class Hop:
    """Stages that stand one after the other on one tab."""

    tab: Tab
    session: str
    """The tab's, at the start; a new one knows nothing of the answer."""
    stages: list[Stage]


@dataclass(slots=True)
class HopTally:
    """What went through one tab, for the receipt and for measuring."""

    jobs: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    elapsed_s: float = 0.0


@dataclass(slots=True)
class Pipeline:
    """The way of one answer. `open` before the first `step`, `close` at the end."""

    tabs: Tabs
    keeper: StageKeeper
    model: BrowserModel
    request: NodeRequest = field(default_factory=NodeRequest)
    """What the client wants of every tab on the way."""
    hops: list[Hop] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """All positions that were run, so that a moved stage can be made anew."""
    moves: list[dict[str, Any]] = field(default_factory=list)
    tally: dict[str, HopTally] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=dict)
    """Tabs by stage name."""
    checks: list[dict[str, Any]] = field(default_factory=list)
    """Hops that were looked at again on another tab, and what came of it."""
    _session: str = ""
    _check: SpotCheck | None = None
    _lost: set[str] = field(default_factory=set)
    """Sessions of tabs that failed this answer; the same tab with a new session may be asked again."""
    _reserved: list[Tab] = field(default_factory=list)
    _drops: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def on_the_way(self) -> list[Tab]:
        """Every tab that has a part in the next token, once, however many hops it has."""
        return self._reserved

    @property
    def _offered(self) -> bool:
        """Whether what tabs hold by the model's name now is this model."""
        return self.keeper.shelf.models.get(self.model.model_id) == self.model

    def open(self) -> None:
        """Reserve a place on a tab for every stage.

        Raises:
            WorkFault: `no_free_slot`, or nobody holds a stage, or what tabs hold by its name now is another model.
        """
        if not self._offered:
            raise WorkFault("no_holder", f"{self.model.model_id} was taken away or replaced meanwhile", blame=False)
        hops: list[Hop] = []
        for stage in self.model.stages:
            decision = decide_stage(self.tabs, stage, self.request, self._lost)
            eligible = [score.node_id for score in decision.ranked]
            if hops and (hops[-1].tab.tab_id in eligible):
                hops[-1].stages.append(stage)
                continue
            chosen = self.tabs.get(decision.selected) if decision.selected is not None else None
            if chosen is None:
                cause = "no_free_slot" if decision.worth_waiting else "no_holder"
                raise WorkFault(cause, f"no tab can take {stage.name} now", blame=False)
            assert chosen.session is not None
            hops.append(Hop(chosen, chosen.session.session_id, [stage]))
        self.hops = hops
        self._session = secrets.token_hex(12)
        self._reserved = list({hop.tab.tab_id: hop.tab for hop in hops}.values())
        for tab in self._reserved:
            self.tabs.reserve(tab)
        for hop in hops:
            self.keeper.use(hop.tab, hop.stages)
        self._check = self._plan()

    def _plan(self) -> SpotCheck | None:
        """Sometimes one hop, of those whose stages another tab holds too, is looked at again."""
        hop = CHANCE.choice(self.hops)
        if not wanted(hop.tab) or not self.keeper.comparisons.holders_of(hop.stages, (hop.tab,)):
            return None
        at_token = 1 + CHANCE.randrange(WITHIN_TOKENS)
        return SpotCheck(self.model, hop.tab, hop.session, tuple(hop.stages), at_token)

    def _look_again(self) -> None:
        check, self._check = self._check, None
        if check is None or check.result is None or check.tab.session is None:
            return
        if check.tab.session.session_id == check.session:
            story: dict[str, Any] = {"stages": [stage.name for stage in check.stages], "tab": check.tab.tab_id}
            if self.keeper.look_again(check.tab, check.question(), check.result, story):
                self.checks.append(story)

    def close(self) -> None:
        """Give the places back, and let the tabs forget the answer."""
        self._look_again()
        for hop in self.hops:
            self.keeper.unuse(hop.tab, hop.stages)
        for tab in self._reserved:
            self.tabs.release(tab)
        for hop in self.hops:
            names = [stage.name for stage in hop.stages]
            task = asyncio.create_task(self.keeper.desk.drop(hop.tab, names, self._session))
            self._drops.add(task)
            task.add_done_callback(self._drops.discard)
        self._reserved, self.hops = [], []

    async def step(self, tokens: list[int]) -> Top:
        """The best next tokens after these.

        Raises:
            WorkFault: no tab could go on.
        """
        self.tokens += tokens
        start = len(self.tokens) - len(tokens)
        while True:
            try:
                return await self._through(start)
            except WorkFault as fault:
                await self._move(fault)
                start = 0  # a new way knows nothing of what came before

    async def _through(self, start: int) -> Top:
        top: Top | None = None
        for begin in range(start, len(self.tokens), CHUNK):
            chunk = self.tokens[begin : begin + CHUNK]
            last = begin + len(chunk) == len(self.tokens)
            count = min(TOP, self.model.config.vocab_size)
            span = Span(self._session, begin, len(chunk), rows=1 if last else 0, top=count)
            made = await self._hops(span, chunk)
            if last:
                assert isinstance(made, Top)
                top = made
        assert top is not None
        if self._check is not None and self._check.due:
            self._look_again()
        return top

    async def logits(self, tokens: list[int]) -> Floats:
        """All logits of every position, for comparing with a reference."""
        self.tokens += tokens
        parts = []
        for begin in range(0, len(tokens), CHUNK):
            chunk = tokens[begin : begin + CHUNK]
            span = Span(self._session, begin, len(chunk), rows=len(chunk), top=0)
            made = await self._hops(span, chunk)
            assert isinstance(made, np.ndarray)
            parts.append(made)
        return np.concatenate(parts)

    async def _hops(self, span: Span, chunk: list[int]) -> Numbers:
        """What the last hop makes of some positions: logits as the span wants them."""
        hidden = self.model.embeddings(chunk)
        made: Numbers = hidden
        for hop in self.hops:
            tally, given = self.tally.setdefault(hop.tab.tab_id, HopTally()), hidden
            if hop.tab.strikes.holds(monotonic()) is not None:
                caught = WorkFault("caught", "the tab was caught at a wrong answer meanwhile", blame=False)
                raise HopLost(hop, caught)
            try:
                data, elapsed_s = await self.keeper.desk.run(hop.tab, self.model, hop.stages, span, hidden, held=True)
                made = self._made(hop, span, data)
            except WorkFault as fault:
                raise HopLost(hop, fault) from None
            tally.jobs += 1
            tally.sent_bytes += given.nbytes
            tally.received_bytes += len(data)
            tally.elapsed_s += elapsed_s
            for stage in hop.stages:
                self.used.setdefault(stage.name, set()).add(hop.tab.tab_id)
            self._keep(hop, span, given, made)
            if not isinstance(made, Top):
                hidden = made
        return made

    def _made(self, hop: Hop, span: Span, data: memoryview) -> Numbers:
        """The numbers in a hop's answer.

        Raises:
            WorkFault: they are not what was asked for.
        """
        config = self.model.config
        if not hop.stages[-1].final:
            return activations(data, span.tokens, config.hidden_size)
        if span.rows and span.top:
            return best_of(data, span.rows, span.top, config.vocab_size)[-1]
        return activations(data, span.rows, config.vocab_size)

    def _keep(self, hop: Hop, span: Span, given: Floats, made: Numbers) -> None:
        """Keep what went through the hop that will be looked at again."""
        check = self._check
        if check is None or check.stages != tuple(hop.stages):
            return
        result: Numbers | None = None
        if span.rows and span.top:
            result = made if isinstance(made, Top) else made[-1:]
        if not check.saw(given, result):
            self._check = None

    async def _move(self, fault: WorkFault) -> None:
        """Find another way, waiting a while for somebody to take what was lost."""
        if not isinstance(fault, HopLost):
            raise fault
        lost = fault.hop.tab
        if fault.cause != "cache_lost":
            self._lost.add(fault.hop.session)
        if fault.blame:
            self.tabs.outcome(lost, "timed_out" if fault.cause == "timeout" else "failed", detail=fault.cause)
            if fault.cause != "tab_lost":
                self.keeper.unable(lost, fault.hop.stages)
        if len(self.moves) >= MOST_MOVES:
            raise fault
        log.warning("stage moves", model=self.model.model_id, tab=lost.tab_id, cause=fault.cause)
        self._check = None  # it lost what it had kept
        self.moves.append({"tab": lost.tab_id, "cause": fault.cause, "after_tokens": len(self.tokens)})
        self.close()
        by = monotonic() + MOVE_S
        while True:
            try:
                self.open()
            except WorkFault:
                if monotonic() > by or not self._offered:
                    raise fault from None
                await asyncio.sleep(0.1)
            else:
                return

    def story(self) -> dict[str, Any]:
        """Who held which stage, for the receipt."""
        return {
            "model": self.model.model_id,
            "stages": [
                {
                    "stage": stage.name,
                    "layers": [stage.first, stage.last],
                    "tabs": sorted(self.used.get(stage.name, ())),
                    "agreed_with": sorted(
                        {
                            twin
                            for tab in self.used.get(stage.name, ())
                            for twin in self.keeper.comparisons.twins(stage, tab)
                        }
                    ),
                }
                for stage in self.model.stages
            ],
            "moves": self.moves,
            "checks": self.checks,
            "hops": {
                tab: {
                    "jobs": tally.jobs,
                    "sent_bytes": tally.sent_bytes,
                    "received_bytes": tally.received_bytes,
                    "elapsed_ms": round(tally.elapsed_s * 1000, 3),
                }
                for tab, tally in sorted(self.tally.items())
            },
        }


class HopLost(WorkFault):
    """A tab on the way did not do its part."""

    def __init__(self, hop: Hop, fault: WorkFault) -> None:
        super().__init__(fault.cause, str(fault), blame=fault.blame)
        self.hop = hop


def decide_stage(tabs: Tabs, stage: Stage, request: NodeRequest, lost: Collection[str] = ()) -> NodeDecision:
    """Which tab takes a stage of an answer: the node router over all tabs but those of lost sessions."""
    now, now_s = monotonic(), time.time()
    here = [tab for tab in tabs.online if tab.session is not None and tab.session.session_id not in lost]
    return decide_node(request, ModelNeed(stage.name), [tab.state(now, now_s) for tab in here])
