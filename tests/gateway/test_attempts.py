"""The one retry loop: what is tried again, how often in all, and what counts against whom."""

import asyncio
import functools
import json
import threading
import time

import openai
import pytest
from openai import AsyncOpenAI

from brain_coord.classes.breaker import Breaker, BreakerRules
from brain_coord.classes.health import TargetHealth
from brain_coord.classes.target import TargetFault
from brain_coord.gateway.attempts import MAX_IN_VAIN, Limits
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.gateway.request import LARGE_BYTES, ApiRequest
from brain_coord.web.view.trace import trace_of
from tests.support.configured import Configured
from tests.support.eventually import eventually
from tests.support.fake_openai import FakeOpenAi
from tests.support.fake_targets import OK, FakeTarget, Play, attempt, failing, request
from tests.support.raw_node import RawNode, answer, chunk

IMPATIENT = Limits(phases=PhaseLimits(accept_s=5.0, first_output_s=0.05, between_events_s=0.05), whole_s=0.05)
IMPATIENT_AT_FIRST = Limits(phases=PhaseLimits(first_output_s=0.05, slowest_tok_s=100.0), whole_s=5.0)


def lost(*, ran: bool = False) -> TargetFault:
    return TargetFault("node_lost", "gone", ran=ran)


def causes(result) -> list[str | None]:
    return [each.cause for each in result.attempts]


@pytest.mark.case("E-12")
@pytest.mark.parametrize("code", [400, 413, 422, 409])
async def test_what_the_engine_refuses_is_tried_once_and_passed_on(code):
    first, second = FakeTarget("a", failing(code)), FakeTarget("b")
    result = await attempt(first, second)
    assert result.refusal.status == code
    assert second.seen == []
    assert (first.outcomes, first.health.breaker.pristine) == ([], True)


@pytest.mark.case("D-01")
async def test_a_large_request_is_made_ready_for_its_target_off_the_event_loop(monkeypatch):
    threads = []

    def body_for(asked, model, **_):
        threads.append(threading.get_ident() == threading.main_thread().ident)
        return asked.body

    monkeypatch.setattr(ApiRequest, "body_for", body_for)
    for size in (10, LARGE_BYTES):
        assert (await attempt(FakeTarget("a"), asked=request(user="x" * size))).body is not None
    assert threads == [True, False]


@pytest.mark.case("E-12")
@pytest.mark.parametrize("code", [401, 403, 404])
async def test_a_refusal_of_ourselves_goes_to_the_next_and_marks_the_target(code):
    first, second = FakeTarget("a", failing(code)), FakeTarget("b")
    result = await attempt(first, second)
    assert result.body is not None
    assert causes(result) == [f"status_{code}", None]
    assert first.health.last(time.monotonic(), ("/v1/chat/completions", "m")).startswith("misconfigured")
    assert (first.outcomes, first.health.breaker.pristine) == ([], True)
    assert (await attempt(FakeTarget("a", failing(code)))).failure == "misconfigured"


@pytest.mark.case("E-12")
@pytest.mark.parametrize("code", [429, 503, 529])
async def test_a_busy_target_goes_to_the_next_and_is_not_blamed(code):
    first, second = FakeTarget("a", failing(code, retry_after="17")), FakeTarget("b")
    result = await attempt(first, second)
    assert result.body is not None
    assert (first.outcomes, first.health.breaker.pristine) == ([], True)
    assert first.health.last(time.monotonic()) == "said it is busy for another 17 s"


@pytest.mark.parametrize("error", [{"type": "overloaded_error"}, {"code": 429}, {"code": "rate_limit_exceeded"}])
async def test_so_does_one_that_says_it_under_a_good_status(error):
    first, second = FakeTarget("a", Play(body=json.dumps({"error": error}).encode())), FakeTarget("b")
    result = await attempt(first, second)
    assert result.body is not None
    assert causes(result) == ["busy", None]
    assert (first.outcomes, first.health.breaker.pristine) == ([], True)
    assert first.health.last(time.monotonic()).startswith("said it is busy for another ")
    assert (await attempt(first)).failure == "unavailable"


@pytest.mark.parametrize("words", ["²", "soon", "-1", "9" * 400])
async def test_a_busy_target_may_say_anything_for_how_long(words):
    first, second = FakeTarget("a", failing(503, retry_after=words)), FakeTarget("b")
    assert (await attempt(first, second)).body is not None
    assert first.health.last(time.monotonic()).startswith("said it is busy for another ")


@pytest.mark.parametrize("cause", ["busy", "draining"])
async def test_a_node_that_turns_a_job_away_is_asked_last_for_a_moment(cause):
    first, second = FakeTarget("a", Play(refuses=TargetFault(cause, "no", ran=False, blame=False))), FakeTarget("b")
    assert (await attempt(first, second)).body is not None
    assert first.health.last(time.monotonic()) == "said it is busy for another 1 s"
    assert (first.outcomes, first.health.breaker.pristine) == ([], True)
    assert (await attempt(first)).failure == "unavailable"


async def test_three_targets_are_asked_at_most():
    targets = [FakeTarget(name, Play(refuses=lost())) for name in "abcd"]
    result = await attempt(*targets)
    assert [len(target.seen) for target in targets] == [1, 1, 1, 0]
    assert result.failure == "target_failed"


async def test_a_lost_race_for_a_slot_is_no_attempt():
    taken = TargetFault("no_free_slot", "taken", ran=False, blame=False)
    targets = [FakeTarget(str(number), Play(refuses=taken)) for number in range(5)]
    last = FakeTarget("last")
    result = await attempt(*targets, last)
    assert result.body is not None
    assert len(result.reached) == 1
    assert all(target.health.breaker.pristine for target in targets)


async def test_races_for_slots_are_not_lost_for_ever():
    taken = TargetFault("no_free_slot", "taken", ran=False, blame=False)
    targets = [FakeTarget(str(number), Play(refuses=taken)) for number in range(MAX_IN_VAIN + 1)]
    result = await attempt(*targets)
    assert (len(result.attempts), result.failure) == (MAX_IN_VAIN, "no_capacity")


@pytest.mark.case("E-12")
async def test_a_client_that_repeats_by_itself_gets_one_attempt():
    first, second = FakeTarget("a", Play(refuses=lost())), FakeTarget("b")
    await attempt(first, second, asked=request(headers={b"x-stainless-retry-count": b"1"}))
    assert second.seen == []


async def test_a_prompt_that_two_engines_fail_on_stops_there_and_hurts_nobody():
    targets = [FakeTarget(name, failing(500)) for name in "abc"]
    result = await attempt(*targets)
    assert [len(target.seen) for target in targets] == [1, 1, 0]
    assert result.failure == "engine_error"
    for target in targets:
        assert target.outcomes == []
        assert target.health.breaker.pristine


async def test_an_engine_error_that_another_engine_did_not_have_counts():
    first, second = FakeTarget("a", failing(500)), FakeTarget("b")
    await attempt(first, second)
    assert (first.outcomes, second.outcomes) == (["failed"], ["completed"])
    assert first.health.breaker.faults == 1


async def test_one_prompt_sent_again_and_again_does_not_pause_the_only_target():
    target = FakeTarget("a", failing(500))
    for _ in range(10):
        await attempt(target)
    assert target.health.breaker.faults == 1
    for number in range(3):
        await attempt(target, asked=request(user=str(number)))
    assert target.health.breaker.begin(time.monotonic()) is None


@pytest.mark.case("E-12")
async def test_a_silent_target_is_cancelled_before_the_next_is_asked_and_two_are_enough():
    log: list[str] = []
    targets = [FakeTarget(name, Play(status=None), log=log) for name in "abc"]
    limits = Limits(phases=IMPATIENT.phases, whole_s=5.0)
    result = await attempt(*targets, limits=limits, asked=request(stream=True))
    assert log == ["a asked", "a closed", "b asked", "b closed"]
    assert causes(result) == ["timeout", "timeout"]
    assert [target.outcomes for target in targets] == [["timed_out"], ["timed_out"], []]
    assert all(target.running == 0 for target in targets)


async def test_of_a_target_that_is_silent_about_a_whole_answer_the_next_one_takes_over():
    hung = FakeTarget("hung", Play(status=None))
    result = await attempt(hung, FakeTarget("fine"), limits=IMPATIENT_AT_FIRST, asked=request(max_tokens=5))
    assert causes(result) == ["timeout", None]
    assert result.body is not None
    assert hung.outcomes == ["timed_out"]


async def test_a_status_without_an_answer_behind_it_is_silence_too():
    class OnlyHead(FakeTarget):
        async def start(self, job):
            exchange = await super().start(job)
            exchange.pass_on = lambda _: asyncio.Event().wait()
            return exchange

    result = await attempt(OnlyHead("hung"), FakeTarget("fine"), limits=IMPATIENT_AT_FIRST, asked=request(max_tokens=5))
    assert causes(result) == ["timeout", None]


async def test_what_is_left_of_a_requests_time_after_others_were_silent_is_nobodys_fault():
    limits = Limits(phases=PhaseLimits(first_output_s=5.0), whole_s=1.0)
    target = FakeTarget("late", Play(status=None))
    result = await attempt(target, limits=limits)
    assert causes(result) == ["deadline"]
    assert result.failure == "deadline"
    assert (result.attempts[0].blamed, target.outcomes) == (False, [])


async def test_a_whole_answer_that_needs_more_than_the_requests_time_is_nobodys_fault():
    limits = Limits(phases=PhaseLimits(first_output_s=0.05), whole_s=0.2)
    target = FakeTarget("slow", Play(status=None))
    result = await attempt(target, limits=limits, asked=request(max_tokens=16_000))
    assert (causes(result), result.failure, target.outcomes) == (["deadline"], "deadline", [])


async def test_a_job_that_is_not_accepted_within_the_requests_time_ends_with_it():
    class Takes(FakeTarget):
        async def start(self, job):
            await asyncio.Event().wait()

    target = Takes("late")
    result = await attempt(target, limits=Limits(phases=PhaseLimits(accept_s=60.0), whole_s=0.1))
    assert causes(result) == ["deadline"]
    assert (result.attempts[0].ran, result.attempts[0].blamed, target.outcomes) == (False, False, [])


def test_a_whole_answer_may_take_the_time_that_its_tokens_take_at_a_slow_speed():
    limits = PhaseLimits(first_output_s=120.0, slowest_tok_s=5.0)
    assert limits.whole_answer_s(50, generates=True) == 130.0
    assert limits.whole_answer_s(None, generates=True) == 120.0 + 1024 / 5
    assert limits.whole_answer_s(None, generates=False) == 120.0


async def test_a_paused_target_is_passed_over_without_being_asked():
    health = TargetHealth("a", Breaker(BreakerRules(faults=1)))
    health.failed(health.breaker.begin(0.0), time.monotonic(), "node_lost", spread=0.5)
    first, second = FakeTarget("a", health=health), FakeTarget("b")
    result = await attempt(first, second)
    assert first.seen == []
    assert causes(result) == ["paused", None]
    assert len(result.reached) == 1


async def test_one_of_many_requests_tries_a_target_whose_pause_is_over():
    health = TargetHealth("a", Breaker(BreakerRules(faults=1, first_open_s=0.01)))
    health.failed(health.breaker.begin(0.0), time.monotonic() - 1.0, "node_lost", spread=0.5)
    gate = asyncio.Event()

    class Slow(FakeTarget):
        async def start(self, job):
            self.seen.append(job.body)
            await gate.wait()
            return await super().start(job)

    probed, other = Slow("a", health=health), FakeTarget("b")
    running = [asyncio.create_task(attempt(probed, other)) for _ in range(20)]
    await eventually(lambda: len(other.seen) == 19)
    gate.set()
    results = await asyncio.gather(*running)
    assert all(result.body is not None for result in results)
    assert len(probed.seen) == 2  # the one request, noted before and after it waited
    assert health.breaker.pristine or health.breaker.faults == 0


async def test_a_cancelled_request_tells_nothing_of_its_target():
    target = FakeTarget("a", Play(status=None))
    running = asyncio.create_task(attempt(target))
    await eventually(lambda: target.running == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert target.running == 0
    assert target.health.breaker.pristine


@pytest.mark.parametrize(
    ("plays", "failure"),
    [
        ([failing(429), failing(401)], "busy"),
        ([failing(503), Play(refuses=lost())], "unavailable"),
        ([Play(refuses=lost()), failing(404)], "target_failed"),
        ([failing(429), failing(500)], "engine_error"),
    ],
)
async def test_of_several_failures_the_client_is_told_the_one_that_helps_most(plays, failure):
    result = await attempt(*(FakeTarget(str(at), play) for at, play in enumerate(plays)))
    assert result.failure == failure


async def test_the_healthy_target_answers_and_only_it_is_credited():
    first, second, third = FakeTarget("a", Play(refuses=lost())), FakeTarget("b", OK), FakeTarget("c")
    result = await attempt(first, second, third)
    assert causes(result) == ["node_lost", None]
    assert (first.outcomes, second.outcomes, third.outcomes) == (["failed"], ["completed"], [])


# --- through the true servers ------------------------------------------------------------------------------------------

QUICK_ANSWER = functools.partial(answer, pause_s=0.004)
FIRST, SECOND = "qwen/qwen3-0.6b", "huggingfacetb/smollm2-135m-instruct"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    rules = "[breaker]\nfaults = 1000\n[deadlines]\nfirst_output_s = 4.0\n[queue]\nwait_s = 5.0\n"
    with Configured(tmp_path_factory.mktemp("coord") / "data", rules) as running:
        yield running


async def ready(coordinator: Configured, *nodes: RawNode) -> None:
    for node in nodes:
        await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        node.jobs.clear()


def says(code: int, **head: str):
    async def script(job):
        await job.accept()
        await job.head(code, "application/json", **head)
        await job.send(b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}')
        await job.end()

    return script


async def refuses(job):
    await job.drop()


async def takes_it_and_is_silent(job):
    await job.accept()
    await job.cancelled.wait()
    await job.end(ok=False, cause="cancelled")


@pytest.mark.case("E-12")
async def test_the_official_clients_own_retries_do_not_multiply_ours(coordinator):
    calls: dict[str, int] = {}
    scripts = {
        "400": says(400),
        "422": says(422),
        "401": says(401),
        "404": says(404),
        "429": says(429, retry_after="1"),
        "500": says(500),
        "503": says(503, retry_after="1"),
        "refused": refuses,
        "silence": takes_it_and_is_silent,
    }
    async with (
        RawNode(coordinator.url, script=QUICK_ANSWER) as one,
        RawNode(coordinator.url, script=QUICK_ANSWER) as two,
        AsyncOpenAI(base_url=f"{coordinator.url}/v1", api_key=coordinator.secret) as client,
    ):
        await ready(coordinator, one, two)

        async def ask():
            message = {"role": "user", "content": "x"}
            stream = await client.chat.completions.create(model="brain/mock", messages=[message], stream=True)
            return [part async for part in stream]

        for name, script in scripts.items():
            one.script = two.script = script
            one.jobs.clear()
            two.jobs.clear()
            with pytest.raises(openai.APIStatusError) as told:
                await ask()
            calls[name] = len(one.jobs) + len(two.jobs)
            if name == "silence":
                assert all(job.cancelled.is_set() for job in one.jobs + two.jobs)
                receipt_id = told.value.body.get("receipt") or told.value.response.json()["brain"]["receipt"]
                attempts = (await coordinator.receipt(receipt_id))["attempts"]
                assert [each["cause"] for each in attempts] == ["timeout", "timeout"]
            one.script = two.script = QUICK_ANSWER
            await ask()
    # Two targets are all there are: one request asks each once. The client repeats twice what may be repeated, and each
    # of its repeats is one attempt.
    assert {name: calls[name] for name in ("400", "422")} == {"400": 1, "422": 1}
    assert {name: calls[name] for name in ("401", "404", "500", "silence")} == dict.fromkeys(
        ("401", "404", "500", "silence"), 2
    )
    assert {name: calls[name] for name in ("429", "503", "refused")} == dict.fromkeys(("429", "503", "refused"), 4)


@pytest.mark.case("E-11")
async def test_a_hung_node_holds_up_nobody_but_its_own_clients(coordinator):
    hung = RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER)
    fine = RawNode(coordinator.url, models=[SECOND], script=QUICK_ANSWER, slots=8)
    async with hung, fine:
        await ready(coordinator, hung, fine)
        hung.script = takes_it_and_is_silent
        stuck = [asyncio.create_task(coordinator.chat(FIRST, stream=True)) for _ in range(100)]
        await eventually(lambda: len(hung.jobs) == hung.slots)
        quick = await asyncio.gather(*(coordinator.chat(SECOND, stream=True) for _ in range(20)))
        assert all(reply.status_code == 200 and "one " in reply.text for reply in quick)
        assert not all(task.done() for task in stuck)  # the others were served while these still hung
        replies = await asyncio.gather(*stuck)
        codes = sorted({reply.status_code for reply in replies})
        assert codes == [503, 504]
        assert all(reply.headers["retry-after"] for reply in replies if reply.status_code == 503)
        assert all(job.cancelled.is_set() for job in hung.jobs)
    # Then there is no node at all: a short wait for one that may come back, then a clear answer.
    began = time.monotonic()
    reply = await coordinator.chat(SECOND)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "no_capacity")
    assert "offline" in reply.json()["error"]["message"]
    assert reply.headers["retry-after"]
    assert time.monotonic() - began < 30


@pytest.mark.case("E-11")
async def test_a_request_waits_a_moment_for_a_node_that_just_lost_its_link(coordinator):
    node = RawNode(coordinator.url, models=[SECOND], script=QUICK_ANSWER)
    async with node:
        await ready(coordinator, node)
    waiting = asyncio.create_task(coordinator.chat(SECOND))
    again = RawNode(coordinator.url, models=[SECOND], script=QUICK_ANSWER, identity=node.identity)
    async with again:
        reply = await waiting
    assert reply.status_code == 200
    assert reply.json()["brain"]["node"] == node.node_id


@pytest.mark.case("E-11")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_hung_node_of_two_is_fallen_back_from(coordinator, stream):
    async with (
        RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER) as hung,
        FakeOpenAi(FIRST) as far,
    ):
        rules = coordinator.file.read_text()
        coordinator.reload(rules, far.toml("external", "behind", probe_s=0))
        await ready(coordinator, hung)
        hung.script = takes_it_and_is_silent
        reply = await coordinator.chat(FIRST, stream=stream, mode="COMMUNITY", max_tokens=5)
        coordinator.reload(rules)
    assert "far " in reply.text
    receipt = await coordinator.receipt(reply.headers["x-brain-receipt"])
    assert [attempt["cause"] for attempt in receipt["attempts"]] == ["timeout", None]
    assert receipt["decision"]["node"]["decision"]["selected"] == hung.node_id
    assert trace_of(receipt).sentence.startswith(f"NATIVE_NETWORK (COMMUNITY) → {hung.node_id[:6]}…: score ")
    assert hung.jobs[0].cancelled.is_set()


@pytest.mark.case("E-06")
async def test_a_node_that_dies_after_its_first_words_is_never_continued_by_another(coordinator):
    async with (
        RawNode(coordinator.url, script=QUICK_ANSWER) as one,
        RawNode(coordinator.url, script=QUICK_ANSWER) as two,
    ):
        await ready(coordinator, one, two)

        async def dies(job):
            await job.accept()
            await job.head()
            for word in ("aa ", "bb ", "cc "):
                await job.event(chunk(word))
            await asyncio.sleep(0.05)
            await job.drop()

        one.script = two.script = dies
        reply = await coordinator.chat("brain/mock", stream=True)
    assert len(one.jobs) + len(two.jobs) == 1
    assert reply.text.count("aa ") == 1
    assert '"code":"incomplete"' in reply.text


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_whose_node_fails_waits_for_a_slot_of_the_other_one(coordinator, stream):
    free = asyncio.Event()

    async def held(job):
        await free.wait()
        await QUICK_ANSWER(job)

    async with (
        RawNode(coordinator.url, models=[SECOND], slots=1) as dying,
        RawNode(coordinator.url, models=[SECOND], slots=1) as busy,
    ):
        await ready(coordinator, dying, busy)
        dying.script, busy.script = refuses, held
        ask = functools.partial(coordinator.chat, SECOND, mode="COMMUNITY", privacy="PUBLIC")
        first = asyncio.create_task(ask(node=busy.node_id))
        await eventually(lambda: busy.jobs)
        second = asyncio.create_task(ask(stream=stream))
        await coordinator.until_metric("brain_requests_waiting", 1)
        free.set()
        replies = [await first, await second]
        receipt = await coordinator.receipt(replies[1].headers["x-brain-receipt"])
    assert [reply.status_code for reply in replies] == [200, 200]
    assert [attempt["cause"] for attempt in receipt["attempts"]] == ["node_lost", None]
    assert (receipt["outcome"], receipt["node"]) == ("completed", busy.node_id)
    assert receipt["timings"]["queued_ms"] > 0


async def test_no_target_that_is_asked_after_another_costs_more_than_the_client_allows(coordinator):
    async with (
        RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER, offer={"ask_usd_per_1m": 1.0}) as cheap,
        RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER, offer={"ask_usd_per_1m": 1e6}) as dear,
    ):
        await ready(coordinator, cheap, dear)
        cheap.script = refuses
        told = await coordinator.chat(FIRST, max_tokens=10, max_cost_usd=9.99)
        assert (told.status_code, told.json()["error"]["code"]) == (502, "target_failed")
        assert dear.jobs == []
        reply = await coordinator.chat(FIRST, max_tokens=10, max_cost_usd=10.0)
        assert reply.json()["brain"]["node"] == dear.node_id


async def test_behind_the_brain_node_that_community_took_first_stands_the_order_of_auto(coordinator):
    async with (
        RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER, offer={"ask_usd_per_1m": 1.0}) as one,
        RawNode(coordinator.url, models=[FIRST], script=QUICK_ANSWER, offer={"ask_usd_per_1m": 1.0}) as two,
        FakeOpenAi(FIRST) as far,
    ):
        rules, free = coordinator.file.read_text(), {"prompt_usd_per_1m": 0.0, "completion_usd_per_1m": 0.0}
        coordinator.reload(rules, far.toml("external", "behind", probe_s=0, quality=1.0, **free))
        await ready(coordinator, one, two)
        one.script = two.script = refuses
        reply = await coordinator.chat(FIRST, mode="COMMUNITY", max_tokens=5)
        coordinator.reload(rules)
    receipt = await coordinator.receipt(reply.headers["x-brain-receipt"])
    assert [attempt["class"] for attempt in receipt["attempts"]] == ["NATIVE_NETWORK", "EXTERNAL_MODEL"]
    assert receipt["decision"]["class"]["decision"]["order"][:2] == ["NATIVE_NETWORK", "EXTERNAL_MODEL"]
