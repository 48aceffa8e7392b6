"""Whether tabs that hold the same layers make the same numbers of the same activations, and who is wrong where they do not.

Two that agree are both right. Of two that do not, nothing is known until a third that holds the same settles it: who agrees
with it is right, and only the other one pays. Without a third both stop serving these layers.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import structlog

from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.sampling import TOP, Top
from brain_coord.browser.stage_work import Floats, Span, StageDesk, activations, best_of
from brain_coord.browser.tab import Tab
from brain_coord.browser.work import WorkFault

log = structlog.get_logger("brain.browser")

AGREE_RMS: Final = 2e-3
"""Relative difference that is rounding: other cards, other orders of summing, 16-bit operands beside 32-bit ones."""

AGREE_TOP: Final = 0.9
"""Of the best 64 tokens of the last stage, so many must be the same."""

CHUNK: Final = 64
"""Positions that go through at once."""

Numbers = Floats | Top


@dataclass(frozen=True, slots=True)
class Question:
    """Activations that go into stages which stand one after the other.

    Attributes:
        model: of the stages.
        stages: in order.
        hidden: positions by width.
        last_only: only the last position's result is compared: of the last stage its best tokens. Else all positions
            (then at most `CHUNK`), and of the last stage all logits.
    """

    model: BrowserModel
    stages: tuple[Stage, ...]
    hidden: Floats
    last_only: bool = False

    @property
    def name(self) -> str:
        """The stages' names."""
        return ", ".join(stage.name for stage in self.stages)

    @property
    def final(self) -> bool:
        """Whether logits come out."""
        return self.stages[-1].final

    async def ask(self, desk: StageDesk, tab: Tab) -> Numbers:
        """What a tab makes of it, under a name of its own so that no answer is disturbed.

        Raises:
            Unanswered: it made nothing of it.
        """
        try:
            return await self._answer(desk, tab)
        except WorkFault as fault:
            raise Unanswered(tab, fault) from None

    async def _answer(self, desk: StageDesk, tab: Tab) -> Numbers:
        session = secrets.token_hex(12)
        config, positions = self.model.config, len(self.hidden)
        top = min(TOP, config.vocab_size) if self.last_only else 0
        data, count = memoryview(b""), 0
        for begin in range(0, positions, CHUNK):
            part = self.hidden[begin : begin + CHUNK]
            count = len(part)
            rows = 0
            if self.final and begin + count == positions:
                rows = 1 if self.last_only else count
            span = Span(session, begin, count, rows=rows, top=top)
            data, _ = await desk.run(tab, self.model, list(self.stages), span, part, held=False)
        await desk.drop(tab, [stage.name for stage in self.stages], session)
        if self.final and self.last_only:
            return best_of(data, 1, top, config.vocab_size)[0]
        made = activations(data, count, config.vocab_size if self.final else config.hidden_size)
        return made[-1:] if self.last_only else made

    def differ(self, one: Numbers, two: Numbers) -> str | None:
        """How two results differ by more than rounding, `None` when they agree."""
        if isinstance(one, Top) and isinstance(two, Top):
            return differ_in_best(one, two)
        assert not isinstance(one, Top)
        assert not isinstance(two, Top)
        return differ(one, two, final=self.final)


class Unanswered(WorkFault):
    """A tab made nothing of a question."""

    def __init__(self, tab: Tab, fault: WorkFault) -> None:
        super().__init__(fault.cause, str(fault), blame=fault.blame)
        self.tab = tab


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison of two tabs came to.

    Attributes:
        reason: how they differ, `None` when they agree.
        wrong: the one that a third tab did not bear out, `None` when there was no third, or it settled nothing.
        third: who settled it.
    """

    reason: str | None = None
    wrong: Tab | None = None
    third: Tab | None = None


async def compare(
    desk: StageDesk, question: Question, one: Tab, two: Tab, thirds: Iterable[Tab], known: Numbers | None = None
) -> Finding:
    """Let two tabs answer the same, and where they differ a third.

    Args:
        desk: asks.
        question: what.
        one: a tab.
        two: another.
        thirds: tabs that hold the same, asked only where the first two differ.
        known: what the first made of it already.

    Raises:
        Unanswered: one of the two made nothing of it.
    """
    first = await question.ask(desk, one) if known is None else known
    second = await question.ask(desk, two)
    reason = question.differ(first, second)
    if reason is None:
        return Finding()
    for third in thirds:
        try:
            other = await question.ask(desk, third)
        except Unanswered as fault:
            log.info("third tab made nothing of it", tab=third.tab_id, stages=question.name, cause=fault.cause)
            continue
        bears_out = [question.differ(each, other) is None for each in (first, second)]
        if bears_out == [True, False]:
            return Finding(reason, two, third)
        if bears_out == [False, True]:
            return Finding(reason, one, third)
        break  # it agrees with neither: nobody knows who is wrong
    return Finding(reason)


def differ(one: Floats, two: Floats, *, final: bool) -> str | None:
    """How two results of a stage differ by more than rounding, `None` when they agree."""
    if (told := _apart(one, two)) is not None:
        return told
    if final:
        count = min(TOP, one.shape[1])
        tops = [np.argsort(-each, axis=1, kind="stable")[:, :count] for each in (one, two)]
        shared = min(len(set(a) & set(b)) / count for a, b in zip(*(top.tolist() for top in tops), strict=True))
        return _few(shared, count)
    return None


def differ_in_best(one: Top, two: Top) -> str | None:
    """The same for the best tokens of one position: mostly the same ones, with the same logits."""
    here = {int(token): float(logit) for token, logit in zip(one.tokens, one.logits, strict=True)}
    there = {int(token): float(logit) for token, logit in zip(two.tokens, two.logits, strict=True)}
    shared = len(here.keys() & there.keys())
    if (told := _few(shared / max(1, len(here)), len(here))) is not None:
        return told
    every = sorted(here.keys() | there.keys())
    return _apart(_logits(every, here, there), _logits(every, there, here))


def _logits(tokens: list[int], mine: dict[int, float], theirs: dict[int, float]) -> Floats:
    """The logits of one of two; what is not among its best has no more than the least of those, or it made another up."""
    least = min(mine.values())
    return np.array([mine.get(token, min(least, theirs.get(token, least))) for token in tokens], dtype=np.float32)


def _apart(one: Floats, two: Floats) -> str | None:
    # In double: squares of what 32 bits hold may be more than they hold, and infinity is near nothing.
    first = one.astype(np.float64)
    scale = max(1e-30, float(np.mean(np.square(first))))
    rms = float(np.sqrt(np.mean(np.square(first - two)) / scale))
    return f"a relative difference of {rms:.2g} (RMS) where {AGREE_RMS:g} is rounding" if rms > AGREE_RMS else None


def _few(shared: float, count: int) -> str | None:
    return f"only {shared:.0%} of the best {count} tokens are the same" if shared < AGREE_TOP else None
