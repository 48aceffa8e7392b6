"""How one request ends when ends collide: a client that leaves at the worst moment, a journal that fails, a bug of ours."""

import asyncio
import hashlib
import json
from contextvars import Context
from time import monotonic
from types import SimpleNamespace

import pytest

from brain_coord.classes.target import TargetFault
from brain_coord.gateway.attempts import Limits
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.dialects.base import COUNTED
from brain_coord.gateway.errors import fault
from brain_coord.gateway.generation import GatewaySettings, Generation
from brain_coord.gateway.journal import TEMPLATE_TOKENS, billed_prompt
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.observe.logs import REQUEST_ID
from brain_coord.routing.inputs import ClassState
from brain_coord.routing.vocabulary import CommunityFirst, Plan, ResourceClass
from brain_node.contract.catalog import load_catalog
from tests.gateway.engine_streams import CHAT as STREAM
from tests.support.eventually import eventually
from tests.support.fake_targets import ANSWER, OK, FakeClass, FakeExchange, FakeTarget, Play, request

STREAMED = Play(body=b"".join(STREAM))
NATIVE = ResourceClass.NATIVE_NETWORK


class Journal:
    """Keeps drafts; fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.drafts = []
        self.failures = failures
        self.concluded = lambda draft: draft()

    async def record(self, _request_id, draft) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise fault("store_unavailable", "the request cannot be recorded right now")
        self.drafts.append(self.concluded(draft))


class Connection:
    """A client, which may leave."""

    stalled = False

    def __init__(self) -> None:
        self.sent = []
        self.leave = None
        self.flow = SimpleNamespace(write_paused=False)

    def watch(self, gone) -> None:
        self.leave = gone

    def begin(self, status: int, lines: bytes, length_bytes: int | None = None) -> None:
        self.sent.append({"status": status, "lines": lines, "length_bytes": length_bytes})

    def write(self, body: bytes, *, more: bool) -> None:
        self.sent.append({"body": body, "more_body": more})

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent[1:])


class Slow(FakeTarget):
    """Is freed only when that is cancelled, and tells when it begins to be."""

    def __init__(self, *plays: Play) -> None:
        super().__init__("slow", *plays)
        self.closing = asyncio.Event()

    async def start(self, job):
        exchange = await super().start(job)
        target = self

        class Closing(FakeExchange):
            async def close(self) -> None:
                target.closing.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    target.running -= 1

        return Closing(self, exchange._play)


def generation(target: FakeTarget, journal: Journal, client: Connection, *, stream: bool, **settings) -> Generation:
    backend = FakeClass(NATIVE, lambda: ClassState(NATIVE), [target], wait_s=0.0)
    return Generation(
        request(stream=stream, privacy="PUBLIC"),
        Caller("k-1", Plan.PAID),
        client,
        began=monotonic(),
        decider=Decider([backend], load_catalog(), CommunityFirst.OFF),
        waiting=WaitingRoom(4),
        journal=journal,
        settings=GatewaySettings(**settings),
        limits=DEFAULT_PLANS[Plan.PAID],
    )


async def run(
    target: FakeTarget, journal: Journal, client: Connection, *, stream: bool = True, **settings
) -> Generation:
    made = asyncio.ensure_future(_run(target, journal, client, stream=stream, **settings))
    async with asyncio.timeout(10):
        return await made


async def _run(target: FakeTarget, journal: Journal, client: Connection, **more) -> Generation:
    made = generation(target, journal, client, **more)
    await made.run()
    return made


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("play", [OK, STREAMED], ids=["a whole answer", "a stream"])
async def test_a_client_that_leaves_while_the_target_is_freed_leaves_a_receipt(stream, play):
    target, journal, client = Slow(play), Journal(), Connection()
    running = asyncio.ensure_future(run(target, journal, client, stream=stream))
    await target.closing.wait()
    client.leave()
    await running
    assert target.running == 0
    assert len(journal.drafts) == 1
    whole = (play is STREAMED) is stream
    assert journal.drafts[0].outcome == ("completed" if whole else "client_cancelled")
    assert len(journal.drafts[0].attempts) == 1


async def test_a_client_that_is_gone_when_the_answer_is_settled_changes_nothing():
    target, journal, client = FakeTarget("t", STREAMED), Journal(), Connection()
    made = await run(target, journal, client)
    made.interrupt("client_cancelled")
    await asyncio.sleep(0)
    assert [draft.outcome for draft in journal.drafts] == ["completed"]
    assert target.outcomes == ["completed"]
    assert made.record.kept is journal.drafts[0]


async def test_what_is_learnt_beside_other_requests_is_logged_with_the_requests_own_id():
    target, journal, client = FakeTarget("t", STREAMED), Journal(), Connection()
    journal.concluded = Context().run
    seen = []
    target.outcome = lambda *_, **__: seen.append(REQUEST_ID.get("none"))
    REQUEST_ID.set("req-own")
    await run(target, journal, client)
    assert seen == ["req-own"]


async def test_an_engine_has_its_time_for_the_first_output_also_after_a_body_that_came_slowly():
    class Far(FakeTarget):
        async def start(self, job):
            await asyncio.sleep(0.8)
            exchange = await super().start(job)
            pass_on = exchange.pass_on

            async def later(take) -> None:
                await asyncio.sleep(0.6)
                await pass_on(take)

            exchange.pass_on = later
            return exchange

    limits = Limits(phases=PhaseLimits(first_output_s=1.0))
    made = await run(Far("t", STREAMED), Journal(), Connection(), limits=limits)
    assert [each.cause for each in made.record.result.attempts] == [None]


async def test_an_answer_that_cannot_be_recorded_never_looks_complete():
    target, journal, client = FakeTarget("t", STREAMED), Journal(failures=2), Connection()
    await run(target, journal, client)
    assert client.status == 200
    last = client.body.rstrip().rpartition(b"\n\n")[2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "store_unavailable"
    assert b"[DONE]" not in client.body
    assert b'"length"' not in client.body, "the finish reason was held back"
    assert target.outcomes == ["completed"], "the target is judged once, and did well"


async def test_a_whole_answer_that_cannot_be_recorded_is_an_error():
    journal, client = Journal(failures=2), Connection()
    await run(FakeTarget("t", OK), journal, client, stream=False)
    assert client.status == 503
    assert json.loads(client.body)["error"]["code"] == "store_unavailable"


async def test_of_a_whole_answer_that_could_not_be_recorded_at_once_the_receipt_says_that_nothing_was_given():
    journal, client = Journal(failures=1), Connection()
    target = FakeTarget("t", OK)
    await run(target, journal, client, stream=False)
    assert client.status == 503
    (draft,) = journal.drafts
    assert (draft.outcome, draft.error_code, draft.response_sha256) == ("failed", "store_unavailable", None)
    assert draft.tokens.completion_billed is None
    assert target.outcomes == ["completed"]


async def test_of_a_stream_whose_end_could_not_be_recorded_at_once_the_receipt_tells_what_was_given_before_it():
    target, journal, client = FakeTarget("t", STREAMED), Journal(failures=1), Connection()
    await run(target, journal, client)
    given, _, error = client.body.rstrip().rpartition(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "store_unavailable"
    (draft,) = journal.drafts
    assert (draft.outcome, draft.error_code) == ("incomplete", "store_unavailable")
    assert draft.response_sha256 == hashlib.sha256(given + b"\n\n").hexdigest()
    assert target.outcomes == ["completed"]


async def test_of_a_stream_that_is_all_end_and_could_not_be_recorded_at_once_nothing_was_given():
    journal, client = Journal(failures=1), Connection()
    target = FakeTarget("t", Play(body=STREAM[-3] + STREAM[-1]))
    await run(target, journal, client)
    assert (client.status, json.loads(client.body)["error"]["code"]) == (503, "store_unavailable")
    (draft,) = journal.drafts
    assert (draft.outcome, draft.response_sha256, draft.tokens.completion_billed) == ("failed", None, None)
    assert target.outcomes == ["completed"]


async def test_a_bug_of_ours_is_one_clean_error_and_a_receipt():
    class Broken(FakeTarget):
        async def start(self, job):
            self.seen.append(job.body)
            raise ZeroDivisionError

    journal, client = Journal(), Connection()
    await run(Broken("t"), journal, client)
    assert client.status == 500
    assert json.loads(client.body)["error"]["code"] == "internal"
    assert [draft.error_code for draft in journal.drafts] == ["internal"]


@pytest.mark.parametrize("tokens", [COUNTED - 1, COUNTED, 2**53, 2**63])
@pytest.mark.parametrize("stream", [True, False])
async def test_no_number_that_an_engine_may_say_keeps_a_receipt_from_being_written(stream, tokens):
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": tokens}
    counted = (
        b'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":%b}\n\n' % json.dumps(usage).encode()
    )
    play = Play(
        body=b"".join([*STREAM[:-2], counted, STREAM[-1]]) if stream else json.dumps(ANSWER | {"usage": usage}).encode()
    )
    journal = Journal()
    await run(FakeTarget("t", play), journal, Connection(), stream=stream)
    (draft,) = journal.drafts
    assert draft.canonical()
    assert draft.tokens.prompt_reported == (tokens if tokens < COUNTED else None)
    assert draft.outcome == "completed"


@pytest.mark.parametrize("node_id", ["N-A", None])
async def test_a_node_bills_no_more_of_a_prompt_than_the_request_can_hold(node_id):
    claimed = 5_000_000
    target = FakeTarget("t", Play(body=json.dumps(ANSWER | {"usage": {"prompt_tokens": claimed}}).encode()))
    target.node_id = node_id
    journal = Journal()
    made = await run(target, journal, Connection(), stream=False)
    (draft,) = journal.drafts
    bound = len(made.record.request.body) + TEMPLATE_TOKENS
    assert draft.tokens.prompt_reported == claimed
    assert draft.tokens.prompt_billed == (bound if node_id else claimed)


@pytest.mark.parametrize(
    ("part", "billed"),
    [
        ({"type": "text", "text": "image_url: a word"}, False),
        ({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}, True),
        ({"type": "input_image", "image_url": "https://a.example/b.png"}, True),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, True),
        ({"type": "video_url", "video_url": {"url": "https://a.example/b.mp4"}}, True),
        ({"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}, True),
    ],
)
def test_what_is_no_text_may_be_of_more_tokens_than_its_address_has_bytes(part, billed):
    target = FakeTarget()
    target.node_id = "N-A"
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    assert billed_prompt(50_000, body, target) == (50_000 if billed else len(body) + TEMPLATE_TOKENS)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_receipt_that_cannot_be_written_down_is_one_clean_error_too(stream):
    class Indescribable(FakeTarget):
        def details(self):
            raise ZeroDivisionError

    journal, client = Journal(), Connection()
    await run(Indescribable("t", STREAMED if stream else OK), journal, client, stream=stream)
    written = [] if stream else ["failed"]  # of which it need not say that
    assert [draft.outcome for draft in journal.drafts] == written
    last = client.body.rstrip().rpartition(b"\n\n")[2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "internal"
    assert client.sent[-1]["more_body"] is False


async def test_a_refusal_that_comes_after_a_comment_is_one_event():
    class Thinking(FakeTarget):
        async def start(self, job):
            await asyncio.sleep(0.2)
            return await super().start(job)

    journal, client = Journal(), Connection()
    told = {"error": {"message": "too long", "type": "BadRequestError", "param": "messages", "code": "too_long"}}
    await run(Thinking("t", Play(400, json.dumps(told).encode())), journal, client, keepalive_s=0.05)
    assert client.status == 200
    assert client.body.count(b"data: ") == 1
    assert json.loads(client.body.partition(b"data: ")[2]) == told
    assert [draft.outcome for draft in journal.drafts] == ["refused"]


@pytest.mark.parametrize("why", ["client_cancelled", "slow_client", "draining"])
async def test_whoever_interrupts_is_named_on_the_receipt_and_only_some_are_told(why):
    journal, client = Journal(), Connection()
    target = FakeTarget("t", Play(status=None))
    made: list[Generation] = []

    async def start() -> None:
        made.append(generation(target, journal, client, stream=True))
        await made[0].run()

    running = asyncio.ensure_future(start())
    await eventually(lambda: target.running)
    made[0].interrupt(why)
    made[0].interrupt("draining")
    await running
    assert target.running == 0
    assert [draft.outcome for draft in journal.drafts] == ["failed" if why == "draining" else why]
    assert [attempt.blamed for attempt in journal.drafts[0].attempts] == [False]
    assert bool(client.sent) is (why == "draining")


async def test_a_target_that_was_never_reached_leaves_no_receipt():
    journal, client = Journal(), Connection()
    taken = TargetFault("no_free_slot", "taken", ran=False, blame=False)
    await run(FakeTarget("t", Play(refuses=taken)), journal, client, queue_s=0.05)
    assert client.status == 503
    assert journal.drafts == []
