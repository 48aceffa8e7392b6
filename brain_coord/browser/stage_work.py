"""What is asked of a tab about stages: load one, run some, forget an answer."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.sampling import TOP, Top
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault, packed, run_job, unpacked

Floats = NDArray[np.float32]

LOAD_PATH: Final = "/v1/stage/load"
RUN_PATH: Final = "/v1/stage/run"
DROP_PATH: Final = "/v1/stage/drop"

LOAD_S: Final = 1800.0
RUN_S: Final = 60.0
DROP_S: Final = 20.0
LOST_CACHE: Final = 409


@dataclass(frozen=True, slots=True)
class Span:
    """Positions of one answer that stages run through."""

    session: str
    start: int
    tokens: int
    rows: int = 0
    """Of how many of the last ones the output is wanted."""
    top: int = TOP
    """How many of the best logits; 0 for all of them."""


@dataclass(frozen=True, slots=True)
class StageDesk:
    """Asks tabs about stages."""

    tabs: Tabs

    async def load(self, tab: Tab, model: BrowserModel, stage: Stage) -> int | None:
        """Let a tab load a stage; returns how many bytes of it were in its cache, as it says."""
        self.tabs.reserve(tab)
        body = packed(model.load_header(stage))
        reply = await run_job(self.tabs, tab, LOAD_PATH, body, timeout_s=LOAD_S, most_bytes=4096)
        if reply.status != 200:
            raise WorkFault("failed", f"the tab answered {reply.status}")
        cached = unpacked(reply.body)[0].get("cached")
        return cached if type(cached) is int else None  # it goes to the log: a stranger writes no text there

    async def run(
        self, tab: Tab, model: BrowserModel, stages: list[Stage], span: Span, hidden: Floats, *, held: bool
    ) -> tuple[memoryview, float]:
        """Run stages that stand one after the other on one tab.

        Args:
            tab: that holds them.
            model: of the stages.
            stages: in order.
            span: the positions.
            hidden: activations, tokens by width.
            held: the tab has a place reserved for the whole answer.

        Raises:
            WorkFault: no answer; `cache_lost` when the tab has forgotten what came before.
        """
        header = {
            "stages": [stage.name for stage in stages],
            "session": span.session,
            "start": span.start,
            "tokens": span.tokens,
            "rows": span.rows,
            "top": span.top,
        }
        if not held:
            self.tabs.reserve(tab)
        body = packed(header, np.ascontiguousarray(hidden, dtype="<f4").tobytes())
        width = model.config.vocab_size if stages[-1].final else model.config.hidden_size
        most = 4096 + 4 * width * max(span.tokens, span.rows)
        reply = await run_job(self.tabs, tab, RUN_PATH, body, timeout_s=RUN_S, most_bytes=most, release=not held)
        if reply.status == LOST_CACHE:
            raise WorkFault("cache_lost", "the tab has forgotten the answer so far", blame=False)
        if reply.status != 200:
            raise WorkFault("failed", f"the tab answered {reply.status}")
        return unpacked(reply.body)[1], reply.elapsed_s

    async def drop(self, tab: Tab, stages: list[str], session: str | None) -> None:
        """Let a tab forget an answer, or (without a session) whole stages; nothing happens if it does not."""
        if tab.session is None:
            return
        header = {"stages": stages} if session is None else {"stages": stages, "session": session}
        self.tabs.reserve(tab)
        try:
            await run_job(self.tabs, tab, DROP_PATH, packed(header), timeout_s=DROP_S, most_bytes=4096)
        except WorkFault:
            return


def activations(data: memoryview, tokens: int, width: int) -> Floats:
    """Activations in an answer.

    Raises:
        WorkFault: they are not as many as they should be, or not finite.
    """
    if len(data) != 4 * tokens * width:
        raise WorkFault("protocol", f"{len(data)} bytes came where {4 * tokens * width} belong")
    values = np.frombuffer(data, dtype="<f4").reshape(tokens, width)
    if not np.isfinite(values).all():
        raise WorkFault("wrong_result", "the tab's activations are not finite numbers")
    return values


def best_of(data: memoryview, rows: int, top: int, vocabulary: int) -> list[Top]:
    """The best logits in an answer.

    Raises:
        WorkFault: it is not of that form.
    """
    if len(data) != 8 * rows * top:
        raise WorkFault("protocol", f"{len(data)} bytes came where {8 * rows * top} belong")
    tokens = np.frombuffer(data[: 4 * rows * top], dtype="<u4").reshape(rows, top)
    logits = np.frombuffer(data[4 * rows * top :], dtype="<f4").reshape(rows, top)
    if not np.isfinite(logits).all() or (tokens >= vocabulary).any():
        raise WorkFault("wrong_result", "the tab's logits are not finite numbers of this vocabulary")
    if (np.diff(logits, axis=1) > 0).any() or (np.diff(np.sort(tokens, axis=1), axis=1) == 0).any():
        raise WorkFault("wrong_result", "the tab's best tokens are not so many different ones, best first")
    return [Top(tokens[row], logits[row]) for row in range(rows)]
