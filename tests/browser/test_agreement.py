"""Two tabs that make different numbers: a third settles who is wrong, and without one nobody is."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from brain_coord.browser.agreement import Question, compare, differ, differ_in_best
from brain_coord.browser.comparisons import Comparisons
from brain_coord.browser.sampling import Top
from brain_coord.browser.spot_check import MOST_POSITIONS, SpotCheck, wanted
from brain_coord.browser.stage_work import best_of
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault
from brain_coord.measure.lag import LoopLag

RNG = np.random.default_rng(5)


@dataclass
class Desk:
    """Tabs that double their activations; by tab what they multiply the result with."""

    lies: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    asked: list[tuple[str, int, int]] = field(default_factory=list)

    async def run(self, tab, model, stages, span, hidden, *, held):
        if tab.tab_id in self.gone:
            raise WorkFault("tab_lost", "closed")
        self.asked.append((tab.tab_id, span.start, span.tokens))
        made = (hidden * np.float32(2 * self.lies.get(tab.tab_id, 1.0))).astype("<f4")
        return memoryview(made.tobytes()), 0.0

    async def drop(self, tab, stages, session):
        return None


def question(model, positions=8, **more):
    hidden = RNG.standard_normal((positions, model.config.hidden_size), dtype=np.float32)
    return Question(model, model.stages[:1], hidden, **more)


A, B, C = Tab("A"), Tab("B"), Tab("C")


async def settled(desk, model, thirds):
    finding = await compare(desk, question(model), A, B, thirds)
    return finding.reason is None, finding.wrong and finding.wrong.tab_id, finding.third and finding.third.tab_id


async def test_two_that_agree_need_no_third(model):
    desk = Desk(lies={"C": 3.0, "B": 1.0005})
    assert await settled(desk, model, [C]) == (True, None, None)
    assert "C" not in {tab for tab, _, _ in desk.asked}


@pytest.mark.parametrize("lie", [1.01, -1.0, 0.0, 1e30])
@pytest.mark.parametrize("liar", ["A", "B"])
async def test_the_third_settles_who_is_wrong(model, liar, lie):
    assert await settled(Desk(lies={liar: lie}), model, [C]) == (False, liar, "C")


async def test_without_a_third_or_with_one_that_agrees_with_nobody_it_stays_open(model):
    assert await settled(Desk(lies={"B": 1.01}), model, []) == (False, None, None)
    assert await settled(Desk(lies={"B": 1.01, "C": 1.05}), model, [C]) == (False, None, None)


async def test_a_third_that_is_gone_is_passed_by(model):
    gone = Tab("gone")
    assert await settled(Desk(lies={"A": 1.01}, gone={"gone"}), model, [gone, C]) == (False, "A", "C")
    with pytest.raises(WorkFault):
        await compare(Desk(gone={"B"}), question(model), A, B, [C])


@pytest.mark.parametrize("silent", ["A", "B"])
async def test_who_answers_no_comparison_pays_for_it_and_the_newcomer_waits(model, silent):
    tabs = Tabs(15.0, LoopLag())
    comparisons = Comparisons(tabs, Desk(gone={silent}))
    holder, newcomer = Tab("A"), Tab("B")
    stage = model.stages[0]
    assert not await comparisons.passes(model, stage, holder, newcomer)
    counted = {tab.tab_id: [(done.kind, done.result) for done in tab.standing.done] for tab in (holder, newcomer)}
    assert counted == {"A": [], "B": []} | {silent: [("shadow", "failed")]}
    assert comparisons.suspended(newcomer, stage.name)
    assert not comparisons.suspended(holder, stage.name)


async def test_a_long_question_goes_in_parts_and_what_is_known_is_not_asked_again(model):
    desk = Desk()
    asked = question(model, 100, last_only=True)
    known = asked.hidden[-1:] * 2
    assert (await compare(desk, asked, A, B, [], known)).reason is None
    assert desk.asked == [("B", 0, 64), ("B", 64, 36)]
    assert (await compare(desk, asked, A, B, [], known * np.float32(1.1))).reason is not None


def test_rounding_agrees_and_more_does_not():
    one = RNG.standard_normal((4, 128), dtype=np.float32)
    noise = RNG.standard_normal((4, 128), dtype=np.float32)
    assert differ(one, one + noise * np.float32(1.5e-3), final=True) is None
    assert "RMS" in differ(one, one + noise * np.float32(4e-3), final=False)


def test_the_best_tokens_have_to_be_mostly_the_same_with_the_same_logits():
    tokens, logits = np.arange(64, dtype=np.uint32), np.linspace(9, 1, 64, dtype=np.float32)
    logits[60:] = logits[-1]  # which of these is among the best is a matter of rounding
    best = Top(tokens, logits)
    swapped = Top(np.where(tokens < 60, tokens, tokens + 100).astype(np.uint32), logits)
    assert differ_in_best(best, swapped) is None
    other = Top((tokens + 30).astype(np.uint32), logits)
    assert "of the best 64 tokens" in differ_in_best(best, other)
    assert "RMS" in differ_in_best(best, Top(tokens, logits * np.float32(1.01)))


def test_one_word_of_a_tabs_own_among_the_best_is_a_difference_however_right_the_others_are():
    tokens, logits = np.arange(64, dtype=np.uint32), np.linspace(9, 1, 64, dtype=np.float32)
    honest = Top(tokens, logits)
    own = Top(np.append(np.uint32(777), tokens[:-1]), np.append(np.float32(9.1), logits[:-1]))
    assert "RMS" in differ_in_best(own, honest)
    assert "RMS" in differ_in_best(honest, own)


def test_best_tokens_that_come_twice_or_out_of_order_are_none():
    """A tab that sends one of the right tokens many times would choose the word, and agree with everybody who is honest."""

    def sent(tokens, logits):
        return memoryview(np.array(tokens, dtype="<u4").tobytes() + np.array(logits, dtype="<f4").tobytes())

    (best,) = best_of(sent([7, 3, 9], [2.0, 1.0, 1.0]), 1, 3, 10)
    assert (best.tokens.tolist(), best.logits.tolist()) == ([7, 3, 9], [2.0, 1.0, 1.0])
    for tokens, logits in (([7, 7, 9], [2.0, 1.0, 1.0]), ([7, 3, 9], [1.0, 2.0, 0.0])):
        with pytest.raises(WorkFault, match="best tokens") as refused:
            best_of(sent(tokens, logits), 1, 3, 10)
        assert refused.value.cause == "wrong_result"


def test_an_answer_is_checked_at_its_token_and_not_when_it_is_too_long(model):
    check = SpotCheck(model, A, None, model.stages[:1], at_token=2)
    row = np.zeros((1, model.config.hidden_size), dtype=np.float32)
    assert check.saw(np.zeros((64, model.config.hidden_size), dtype=np.float32), None)
    assert not check.due
    assert check.saw(row, row)
    assert not check.due
    assert check.saw(row, row)
    assert check.due
    assert check.question().hidden.shape == (66, model.config.hidden_size)
    assert not check.saw(np.zeros((MOST_POSITIONS, model.config.hidden_size), dtype=np.float32), None)


def test_new_tabs_and_those_that_were_caught_are_looked_at_more_often():
    class Chance:
        def random(self):
            return 0.1

    new, known, caught = Tab("N-1"), Tab("N-2"), Tab("N-3")
    for tab in (known, caught):
        tab.standing.done.extend([object()] * 20)
    caught.strikes.count = 1
    assert [wanted(tab, Chance()) for tab in (new, known, caught)] == [True, False, True]
