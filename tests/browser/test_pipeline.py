"""An answer on its way through tabs, of which one does not do what it should: the others go on, and it pays."""

import threading
from dataclasses import dataclass, field
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest

from brain_coord.browser.chat import LONG_BYTES, TabsTarget
from brain_coord.browser.chat_request import ChatRefused
from brain_coord.browser.holders import StageKeeper
from brain_coord.browser.jobs import Dispatcher
from brain_coord.browser.offer import CHAT_PATH, BrowserOffer
from brain_coord.browser.pipeline import Pipeline
from brain_coord.browser.stage_work import StageDesk
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import Reply, WorkFault, packed
from brain_coord.classes.backend import Query
from brain_coord.classes.browser import BrowserClass
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec
from brain_coord.fleet.node import Session
from brain_coord.measure.lag import LoopLag
from brain_coord.routing.inputs import NodeRequest
from brain_node.contract.messages import Offer, Report
from tests.support.no_link import NoLink, NoSlots


@dataclass
class Desk:
    """Tabs that say what they always say; by tab, what comes in place of every number."""

    lies: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def run(self, tab, model, stages, span, hidden, *, held):
        assert held
        self.asked.append(tab.tab_id)
        number = np.float32(self.lies.get(tab.tab_id, 1.0))
        if not stages[-1].final:
            return memoryview(np.full(hidden.shape, number, "<f4").tobytes()), 0.01
        if not span.rows:
            return memoryview(b""), 0.01
        tokens = np.arange(span.top, dtype="<u4").tobytes()
        return memoryview(tokens + np.full(span.top, number, "<f4").tobytes()), 0.01

    async def drop(self, tab, stages, session):
        return None


def lending(tabs, name, stages, region=None):
    tab = tabs.known(name)
    now = monotonic()
    session = Session(f"s-{name}", NoLink(), NoSlots(), f"t-{name}", "127.0.0.1", now, now)
    tabs.connect(tab, session, SimpleNamespace(report=Report(), offer=Offer(slots=2, region=region)))
    tab.stages.update(stage.name for stage in stages)
    tabs.measured(tab, 1e9)
    return tab


@pytest.fixture
def tabs():
    return Tabs(15.0, LoopLag())


def pipeline_of(tabs, model, desk, *request):
    keeper = StageKeeper(tabs, SimpleNamespace(models={model.model_id: model}, stages=list), desk)
    return Pipeline(tabs, keeper, model, *request)


def failures(tab: Tab):
    return [outcome.detail for outcome in tab.standing.done if outcome.result == "failed"]


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_numbers_that_are_none_move_the_stage_and_count_against_their_tab_alone(tabs, model, place, number):
    first, last = model.stages
    liar = lending(tabs, "A", [first if place == "first" else last])
    others = [lending(tabs, "B", [last if place == "first" else first]), lending(tabs, "C", [first, last])]
    for other in others:
        other.active = 1  # so that the liar is asked first
    pipeline = pipeline_of(tabs, model, Desk(lies={"A": number}))
    pipeline.open()
    assert "A" in {hop.tab.tab_id for hop in pipeline.hops}
    top = await pipeline.step([1, 2, 3])
    pipeline.close()
    assert [int(token) for token in top.tokens[:3]] == [0, 1, 2]
    assert [move["cause"] for move in pipeline.moves] == ["wrong_result"]
    assert failures(liar) == ["wrong_result"]
    assert not any(failures(other) for other in others)
    assert [tab.active for tab in tabs.online] == [0, 1, 1]
    assert (liar.stages, [len(other.stages) for other in others]) == (set(), [1, 2]), (
        "the next answer asks others first"
    )
    given = first if place == "first" else last
    assert pipeline.keeper.comparisons.suspended(liar, given.name), "and it is not given the same again at once"


@pytest.mark.parametrize(("said", "taken"), [(123, 123), ("\x1b[31mred", None), (None, None), (True, None), ([], None)])
async def test_what_a_tab_says_of_its_cache_is_a_number_or_nothing(tabs, model, monkeypatch, said, taken):
    async def run_job(*_, **__):
        return Reply(200, packed({"cached": said}), 0.1)

    monkeypatch.setattr("brain_coord.browser.stage_work.run_job", run_job)
    assert await StageDesk(tabs).load(lending(tabs, "A", []), model, model.stages[0]) == taken


async def test_without_another_tab_the_answer_ends_and_says_why(tabs, model, monkeypatch):
    monkeypatch.setattr("brain_coord.browser.pipeline.MOVE_S", 0.0)
    liar = lending(tabs, "A", model.stages)
    pipeline = pipeline_of(tabs, model, Desk(lies={"A": float("nan")}))
    pipeline.open()
    with pytest.raises(WorkFault) as caught:
        await pipeline.step([1])
    pipeline.close()
    assert caught.value.cause == "wrong_result"
    assert failures(liar) == ["wrong_result"]


@pytest.mark.parametrize(("size_bytes", "beside"), [(LONG_BYTES, False), (LONG_BYTES + 1, True)])
async def test_a_long_text_is_cut_into_tokens_beside_the_event_loop(model, monkeypatch, size_bytes, beside):
    threads = []

    def read_chat(*_):
        threads.append(threading.current_thread())
        raise ChatRefused("too long")

    monkeypatch.setattr("brain_coord.browser.chat.read_chat", read_chat)
    target = TabsTarget(None, None, model, None, None, None)
    job = JobSpec("req-1", model.model_id, "/v1/chat/completions", b"x" * size_bytes, 60.0)
    exchange = await target.start(job)
    assert (await exchange.head()).status == 400
    assert (threads[0] is not threading.main_thread()) is beside


async def test_where_a_region_is_required_only_tabs_in_it_see_the_prompt(tabs, model):
    eu = NodeRequest(region="eu", require_region=True)
    lending(tabs, "A", model.stages)
    shelf = SimpleNamespace(models={model.model_id: model}, stages=list)
    browser = BrowserClass()
    browser.work = BrowserOffer(Dispatcher(tabs, None), StageKeeper(tabs, shelf, Desk()), ClassSamples())
    anywhere = browser.prospect(Query(model.model_id, CHAT_PATH, NodeRequest()))
    inside = browser.prospect(Query(model.model_id, CHAT_PATH, eu))
    assert (anywhere.state.available, inside.state.available) == (True, False)
    assert inside.shortage.endswith("right now (A: not in eu)")
    near = lending(tabs, "B", model.stages, region="eu")
    near.active = 1  # so that the other one would be asked first
    pipeline = pipeline_of(tabs, model, Desk(), eu)
    pipeline.open()
    assert {hop.tab.tab_id for hop in pipeline.hops} == {"B"}
    pipeline.close()
