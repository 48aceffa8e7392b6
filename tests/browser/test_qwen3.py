"""Qwen3 on tabs in Chromium: transformers' own numbers, whole or split, and answers that survive a tab that leaves."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError, InternalServerError
from playwright.async_api import Browser, Route

from brain_coord.browser.models import add_model
from brain_coord.browser.pipeline import Pipeline
from brain_coord.browser.sampling import Sampler
from brain_coord.browser.work import WorkFault
from tests.support.coordinator import brain_coord
from tests.support.in_process import Inside, coordinator_inside
from tests.support.qwen3 import RandomModel, build_known_qwen3, build_random_model
from tests.support.tabs import LentTab, eventually, lent_tab, webgpu_browser

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

MODEL = "qwen/qwen3-0.6b"
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Go on"}], "extra_body": {"mode": "BROWSER_ONLY"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with webgpu_browser() as running:
        yield running


@pytest.fixture(scope="module")
def random_model(tmp_path_factory) -> RandomModel:
    return build_random_model(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="module")
def known_model(tmp_path_factory):
    return build_known_qwen3(tmp_path_factory.mktemp("known") / "model")


@dataclass
class Lent:
    """A coordinator with a model, and tabs that hold it."""

    inside: Inside
    tabs: list[LentTab]
    data_dir: Path

    @property
    def keeper(self):
        return self.inside.coordinator.browser.keeper

    def pipeline(self) -> Pipeline:
        made = Pipeline(self.inside.coordinator.browser.tabs, self.keeper, self.keeper.shelf.models[MODEL])
        made.open()
        return made

    async def until(self, check: Callable[[], object]) -> None:
        async def there() -> object:
            return check()

        await eventually(there)

    def holders(self) -> list[list[str]]:
        model = self.keeper.shelf.models.get(MODEL)
        return [] if model is None else [[tab.tab_id for tab in self.keeper.holders(stage)] for stage in model.stages]

    async def tab_of(self, tab_id: str) -> LentTab:
        for tab in self.tabs:
            if await tab.node_id == tab_id:
                return tab
        raise AssertionError(tab_id)

    def client(self) -> tuple[AsyncOpenAI, str]:
        done = brain_coord("key", "create", "--data-dir", str(self.data_dir), "--json")
        key = json.loads(done.stdout)["key"]
        return AsyncOpenAI(base_url=f"{self.inside.url}/v1", api_key=key, max_retries=0, timeout=240), key

    async def receipt(self, receipt_id: str, key: str) -> dict[str, object]:
        async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
            reply = await client.get(f"{self.inside.url}/v1/receipts/{receipt_id}")
        return dict(reply.json()["body"])


@pytest.fixture
def lend(browser, tmp_path):
    @asynccontextmanager
    async def lent(folder: Path, tabs: int, *, stages: int = 1, replicas: int = 1, **options) -> AsyncIterator[Lent]:
        data_dir = tmp_path / "coord"
        async with coordinator_inside(data_dir) as inside, AsyncExitStack() as stack:
            there = [await stack.enter_async_context(lent_tab(browser, inside.url, **options)) for _ in range(tabs)]
            add_model(data_dir, folder, MODEL, stages=stages, replicas=replicas)  # as `browser-model add` does
            lent = Lent(inside, there, data_dir)
            await lent.until(lambda: lent.holders() and all(lent.holders()))
            yield lent

    return lent


def relative_rms(got, wanted) -> float:
    return float(np.sqrt(np.mean((got - wanted) ** 2) / np.mean(wanted**2)))


@pytest.mark.parametrize("tabs", [1, 2], ids=["one tab", "split over two"])
async def test_logits_of_64_positions_are_those_of_transformers(lend, random_model, tabs):
    async with lend(random_model.path, tabs, stages=tabs) as lent:
        assert len({holders[0] for holders in lent.holders()}) == tabs, "each tab holds its part"
        way = lent.pipeline()
        assert len(way.hops) == tabs
        got = await way.logits(random_model.tokens)
        way.close()
        assert relative_rms(got, random_model.logits) < 1e-3
        assert relative_rms(got[-1], random_model.logits[-1]) < 1e-3

        again = lent.pipeline()
        greedy, draw = list(random_model.greedy[:8]), Sampler(temperature=0.0)
        tokens = list(greedy)
        for _ in range(6):  # one by one over the cache, as an answer is written
            tokens = [draw.draw(await again.step(tokens))]
            greedy += tokens
        again.close()
        assert greedy == random_model.greedy[:14]
        assert not any(tab.faults for tab in lent.tabs)


async def test_tied_weights_in_32_bits_give_the_same(lend, tmp_path):
    model = await asyncio.to_thread(build_random_model, tmp_path / "tied", "float32", tied=True)
    async with lend(model.path, 1) as lent:
        way = lent.pipeline()
        assert relative_rms(await way.logits(model.tokens), model.logits) < 1e-3
        way.close()


async def test_half_floats_give_the_same(lend, tmp_path):
    model = await asyncio.to_thread(build_random_model, tmp_path / "half", "float16")
    async with lend(model.path, 1) as lent:
        way = lent.pipeline()
        assert relative_rms(await way.logits(model.tokens), model.logits) < 1e-3
        way.close()


async def test_an_answer_goes_on_exactly_where_a_tab_left_it(lend, random_model):
    """The cache of the stage that moved is made anew from the tokens so far: the words after it are transformers'."""
    async with lend(random_model.path, 3, stages=2) as lent:
        way = lent.pipeline()
        said, draw = list(random_model.greedy[:8]), Sampler(temperature=0.0)
        tokens = list(said)
        for number in range(9):
            if number == 4:
                await (await lent.tab_of(way.hops[-1].tab.tab_id)).close()
            tokens = [draw.draw(await way.step(tokens))]
            said += tokens
        way.close()
        assert said == random_model.greedy[:17]
        assert len(way.moves) == 1


async def test_a_known_text_streams_through_the_openai_sdk_from_two_tabs(lend, known_model):
    async with lend(known_model.path, 2, stages=2) as lent:
        client, key = lent.client()
        async with client:
            chunks = [chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == known_model.sentence
            assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 10, "it streams"
            assert chunks[-1].choices[0].finish_reason == "stop"
            brain = chunks[-1].model_extra["brain"]
            assert (brain["class"], brain["mode"]) == ("BROWSER_NETWORK", "BROWSER_ONLY")

            body = await lent.receipt(brain["receipt"], key)
            assert body["class"] == "BROWSER_NETWORK"
            assert body["verified"] is False, "an answer of a language model is compared, not proved"
            stages = body["browser"]["stages"]
            assert [stage["stage"] for stage in stages] == [f"{MODEL}#1/2", f"{MODEL}#2/2"]
            assert [stage["tabs"] for stage in stages] == lent.holders()
            assert body["tokens"]["completion_reported"] == known_model.answer_tokens

            whole = await client.chat.completions.create(**ASK)
            assert whole.choices[0].message.content == known_model.sentence
            assert whole.usage.completion_tokens == known_model.answer_tokens
            short = await client.chat.completions.create(**ASK, max_tokens=3)
            assert short.choices[0].message.content == known_model.text(3)
            assert short.choices[0].finish_reason == "length"
            word = known_model.words[4]
            stopped = await client.chat.completions.create(**ASK, stop=[word])
            assert stopped.choices[0].message.content == known_model.sentence.split(word)[0]
            with pytest.raises(BadRequestError, match="tools"):
                await client.chat.completions.create(
                    **ASK, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]
                )


async def test_closing_a_tab_in_the_middle_of_a_stream_moves_its_stage(lend, known_model):
    async with lend(known_model.path, 3, stages=2, replicas=2) as lent:
        network = lent.inside.coordinator.browser.tabs
        await lent.until(lambda: sum(map(len, lent.holders())) == 3 and not any(tab.active for tab in network))
        client, key = lent.client()
        async with client:
            parts, brain, closed = [], None, None
            async for chunk in await client.chat.completions.create(**ASK, stream=True):
                parts.append((chunk.choices[0].delta.content or "") if chunk.choices else "")
                brain = (chunk.model_extra or {}).get("brain", brain)
                if closed is None and len("".join(parts)) > 20:
                    running = next(tab for tab in network.online if tab.active)  # nothing but the answer runs
                    closed = running.tab_id
                    await (await lent.tab_of(closed)).close()
            assert "".join(parts) == known_model.sentence
            body = await lent.receipt(brain["receipt"], key)
            assert [move["tab"] for move in body["browser"]["moves"]] == [closed]


async def test_when_nobody_can_take_the_stage_the_stream_ends_in_one_clean_error(lend, known_model, monkeypatch):
    monkeypatch.setattr("brain_coord.browser.pipeline.MOVE_S", 1.0)
    async with lend(known_model.path, 1) as lent:
        client, key = lent.client()
        async with httpx.AsyncClient(trust_env=False, timeout=120, headers={"authorization": f"Bearer {key}"}) as raw:
            body = {"model": MODEL, "messages": ASK["messages"], "mode": "BROWSER_ONLY", "stream": True}
            lines = []
            async with raw.stream("POST", f"{lent.inside.url}/v1/chat/completions", json=body) as reply:
                async for line in reply.aiter_lines():
                    if line.startswith("data: "):
                        lines.append(line[6:])
                        if len(lines) == 6:
                            await lent.tabs[0].close()
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        assert events[-1]["error"]["code"] == "incomplete"
        assert sum("error" in event for event in events) == 1
        async with client:
            with pytest.raises(InternalServerError, match="no tab online"):
                await client.chat.completions.create(**ASK)


def lies_when(condition):
    """Source of a module whose results are off by a hundredth while `condition` holds in the page."""

    def lie(source: str) -> str:
        honest = "return numbers.subarray(0, count);"
        assert honest in source
        return source.replace(honest, f"return numbers.subarray(0, count).map((x) => ({condition} ? x * 1.01 : x));")

    return lie


async def test_a_replica_serves_only_when_it_agrees_and_a_disagreement_stops_the_pair(lend, random_model, browser):
    async with lend(random_model.path, 2, replicas=2) as lent:
        await lent.until(lambda: len(lent.holders()[0]) == 2)
        stage = lent.keeper.shelf.models[MODEL].stages[0]
        one, two = lent.holders()[0]
        assert lent.keeper.comparisons.twins(stage, one) == [two]
        await lent.tabs[1].close()
        await lent.until(lambda: len(lent.holders()[0]) == 1)
        async with lent_tab(browser, lent.inside.url, changed={"qwen3.js": lies_when("true")}):
            await lent.until(lambda: lent.holders() == [[]])


async def test_a_third_holder_settles_a_disagreement_and_only_the_liar_pays(lend, random_model, browser):
    async with lend(random_model.path, 2, replicas=3) as lent:
        await lent.until(lambda: len(lent.holders()[0]) == 2)
        honest = lent.holders()[0]
        network = lent.inside.coordinator.browser.tabs
        async with lent_tab(browser, lent.inside.url, changed={"qwen3.js": lies_when("true")}) as liar:
            liar_id = await liar.node_id
            await lent.until(lambda: network.get(liar_id).verified.refused)
            assert lent.holders()[0] == honest
            caught = network.get(liar_id)
            assert "a third tab bears out the other" in (caught.strikes.reason or "")
            assert "RMS" in await liar.text("state")
            assert caught.standing.counts(time.time()).mismatched == 1
            for tab_id in honest:
                assert network.get(tab_id).standing.counts(time.time()).mismatched == 0
                assert network.get(tab_id).strikes.count == 0


async def test_a_tab_that_turns_to_lies_later_is_found_while_it_answers(lend, random_model, browser, monkeypatch):
    monkeypatch.setattr("brain_coord.browser.spot_check.CLOSER_SHARE", 1.0)
    monkeypatch.setattr("brain_coord.browser.pipeline.WITHIN_TOKENS", 4)
    changed = {"qwen3.js": lies_when("globalThis.turned")}
    async with lend(random_model.path, 3, replicas=3, changed=changed) as lent:
        await lent.until(lambda: len(lent.holders()[0]) == 3)
        network = lent.inside.coordinator.browser.tabs
        honest = lent.pipeline()
        token = random_model.tokens
        await honest.step(token[:20])
        for at in range(20, 25):
            await honest.step([token[at]])
        await lent.until(lambda: honest.checks and honest.checks[0].get("result") == "agreed")
        honest.close()
        await lent.until(lambda: not any(tab.active for tab in network))

        way = lent.pipeline()
        (hop,) = way.hops
        await (await lent.tab_of(hop.tab.tab_id)).page.evaluate("globalThis.turned = true")
        await way.step(token[:20])
        for at in range(20, 25):
            await way.step([token[at]])
        liar = network.get(hop.tab.tab_id)
        await lent.until(lambda: liar.verified.refused)
        check = way.checks[0]
        assert (check["result"], check["wrong"], check["tab"]) == ("differed", liar.tab_id, liar.tab_id)
        assert check["settled_by"] not in (liar.tab_id, check["with"])
        await way.step([token[25]])
        assert [move["cause"] for move in way.moves] == ["caught"], "the answer goes on at a tab that is honest"
        assert way.hops[0].tab is not liar
        assert liar.tab_id not in lent.holders()[0]
        assert len(lent.holders()[0]) == 2
        way.close()


async def test_stages_are_spread_anew_when_tabs_come_and_go_and_running_answers_go_on(lend, known_model, browser):
    async with lend(known_model.path, 1, stages=2) as lent:
        (first,) = lent.tabs
        first_id = await first.node_id
        await lent.until(lambda: lent.holders() == [[first_id], [first_id]])
        client, key = lent.client()
        async with client:
            body = {**ASK["extra_body"], "ignore_eos": True}
            stream = await client.chat.completions.create(**{**ASK, "extra_body": body}, stream=True, max_tokens=600)
            parts = [(await anext(stream)).choices[0].delta.content or ""]
            async with lent_tab(browser, lent.inside.url) as second:
                second_id = await second.node_id
                await lent.until(lambda: sorted(map(tuple, lent.holders())) == sorted([(first_id,), (second_id,)]))
                assert lent.inside.coordinator.browser.tabs.get(first_id).active, "the answer still runs"
                brain = None
                async for chunk in stream:
                    parts.append((chunk.choices[0].delta.content or "") if chunk.choices else "")
                    brain = (chunk.model_extra or {}).get("brain", brain)
                assert "".join(parts) == known_model.text(600)
                body = (await lent.receipt(brain["receipt"], key))["browser"]
                assert body["moves"] == []
                assert [stage["tabs"] for stage in body["stages"]] == [[first_id], [first_id]]
                answer = await client.chat.completions.create(**ASK)
                assert answer.choices[0].message.content == known_model.sentence
                body = await lent.receipt(answer.model_extra["brain"]["receipt"], key)
                assert sorted(stage["tabs"][0] for stage in body["browser"]["stages"]) == sorted([first_id, second_id])
                async with httpx.AsyncClient(trust_env=False) as anybody:
                    page = (await anybody.get(f"{lent.inside.url}/network/receipts/{body['id']}")).text
                    assert all(f"/network/tabs/{tab_id}" in page for tab_id in (first_id, second_id))
                    page = (await anybody.get(f"{lent.inside.url}/network/tabs/{second_id}")).text
                    assert "BROWSER_NETWORK" in page, "the answer stands among what the tab had a part in"
            await lent.until(lambda: lent.holders() == [[first_id], [first_id]])
            answer = await client.chat.completions.create(**ASK)
            assert answer.choices[0].message.content == known_model.sentence
        assert not first.faults


async def test_weights_come_from_the_browsers_cache_the_second_time(lend, known_model):
    async with lend(known_model.path, 1) as lent:
        (tab,) = lent.tabs
        fetched = []
        tab.page.on("request", lambda request: fetched.append(request.url) if "/lend/pieces/" in request.url else None)
        await tab.page.reload()
        await tab.lend()
        await lent.until(lambda: not any(lent.holders()))
        await tab.measured()
        await lent.until(lambda: all(lent.holders()))
        assert fetched == []
        async with httpx.AsyncClient(trust_env=False) as stranger:
            sha256 = next(iter(lent.keeper.shelf.pieces))
            assert (await stranger.get(f"{lent.inside.url}/lend/pieces/{sha256}")).status_code == 401


async def test_kernels_that_could_not_be_fetched_are_fetched_again(browser, known_model, tmp_path, monkeypatch):
    monkeypatch.setattr("brain_coord.browser.holders.RETRY_S", 0.5)
    refused = []

    async def refuse_once(route: Route) -> None:
        refused.append(route.request.url)
        if len(refused) == 1:
            await route.fulfill(status=503, body="restarting")
        else:
            await route.continue_()

    data_dir = tmp_path / "coord"
    async with coordinator_inside(data_dir) as inside, lent_tab(browser, inside.url, start=False) as tab:
        await tab.page.route("**/lend/qwen3.wgsl", refuse_once)
        await tab.lend()
        await tab.measured()
        add_model(data_dir, known_model.path, MODEL, stages=1, replicas=1)
        lent = Lent(inside, [tab], data_dir)
        await lent.until(lambda: lent.holders() and all(lent.holders()))
        assert len(refused) == 2


COUNTED = """
globalThis.live = 0;
const create = GPUDevice.prototype.createBuffer, destroy = GPUBuffer.prototype.destroy, kept = new Set();
GPUDevice.prototype.createBuffer = function (wish) {
  const buffer = create.call(this, wish);
  kept.add(buffer);
  live += buffer.size;
  return buffer;
};
GPUBuffer.prototype.destroy = function () {
  if (kept.delete(this)) live -= this.size;
  return destroy.call(this);
};
"""


@pytest.mark.parametrize("link", ["stays", "breaks"])
async def test_a_tab_keeps_nothing_on_its_card_of_a_model_that_is_not_offered_any_more(lend, random_model, link):
    """Else it would hold a little more after each change, and after each break, than its owner lends."""
    async with lend(random_model.path, 1, stages=2) as lent:
        tab, keeper = lent.tabs[0], lent.keeper
        await tab.page.add_init_script(COUNTED)
        await tab.page.reload()
        await tab.lend()
        await lent.until(lambda: all(lent.holders()))
        before = await tab.page.evaluate("live")
        assert before > 0
        way = lent.pipeline()
        await way.step(list(random_model.greedy[:8]))
        add_model(lent.data_dir, random_model.path, MODEL, stages=1, replicas=1)
        if link == "breaks":
            session = way.hops[0].tab.session
            await session.link.close(1001, "as a network does")
            await lent.until(lambda: way.hops[0].tab.session not in (None, session))
        way.close()
        await lent.until(lambda: [stage.name for _, stage in keeper.shelf.stages()] == [f"{MODEL}#1/1"])
        await lent.until(lambda: all(lent.holders()))

        async def small() -> bool:
            return await tab.page.evaluate("live") <= before * 1.1

        await eventually(small, 20)
        assert keeper.tabs.online[0].stages == {f"{MODEL}#1/1"}


async def test_other_weights_under_a_known_name_are_loaded_and_the_old_ones_answer_no_more(
    lend, random_model, known_model
):
    async with lend(random_model.path, 1, stages=2) as lent:
        client, _ = lent.client()
        way = lent.pipeline()
        await way.step(list(random_model.greedy[:8]))
        add_model(lent.data_dir, known_model.path, MODEL, stages=2, replicas=1)
        await lent.until(lambda: lent.keeper.shelf.models[MODEL].folder == known_model.path)
        await lent.until(lambda: not all(lent.holders()))
        await lent.until(lambda: all(lent.holders()))
        async with client:
            answer = await client.chat.completions.create(**ASK)
        assert answer.choices[0].message.content == known_model.sentence
        with pytest.raises(WorkFault, match="forgotten"):
            async with asyncio.timeout(15):  # an answer of the old weights waits for nobody who could go on with it
                await way.step([random_model.greedy[8]])
        way.close()
