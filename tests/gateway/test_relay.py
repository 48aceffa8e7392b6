"""From a target's bytes to a client's, and the limit that moves on the way."""

import asyncio
import json
from time import monotonic

import pytest

from brain_coord.classes.target import Take, TargetFault, hand_on
from brain_coord.gateway import passage
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.dialects import CHAT, DIALECTS, EMBEDDINGS, Dialect
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.relay import PhaseLimits, read_whole, relay_stream, relay_whole
from brain_coord.measure.speed import StreamClock
from tests.gateway.engine_streams import CHAT as STREAM
from tests.gateway.engine_streams import STREAMS, WHOLE

QUICK = PhaseLimits(first_output_s=0.4, between_events_s=0.4)


class Target:
    """Gives the pieces with pauses between them."""

    def __init__(self, *pieces: bytes | float) -> None:
        self.pieces = list(pieces)

    async def read(self) -> bytes | None:
        while self.pieces:
            piece = self.pieces.pop(0)
            if isinstance(piece, bytes):
                return piece
            await asyncio.sleep(piece)
        return None

    async def pass_on(self, take: Take) -> None:
        await hand_on(self.read, take)

    async def head(self):
        raise NotImplementedError

    async def close(self) -> None:
        return


class Cut(Target):
    """Breaks off instead of ending."""

    async def read(self) -> bytes | None:
        piece = await super().read()
        if piece is None:
            raise TargetFault("node_lost", "gone", ran=True)
        return piece


class Client:
    def __init__(self, pause_s: float = 0.0) -> None:
        self.data = b""
        self.pause_s = pause_s

    def write_now(self, data: bytes) -> bool:
        if self.pause_s or not self.data:
            return False
        self.data += data
        return True

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(self.pause_s)
        self.data += data


def answer() -> Answer:
    return Answer(StreamClock(monotonic()))


def within(seconds: float) -> Deadline:
    return Deadline(monotonic() + seconds, every_s=0.1)


async def relay(target: Target, client: Client, limits: PhaseLimits = QUICK, dialect: Dialect = CHAT):
    with within(limits.first_output_s) as limit:
        return await relay_stream(target, dialect, answer(), client, limit, client_usage=True, limits=limits)


async def test_a_stream_passes_up_to_its_end():
    client = Client()
    tail = await relay(Target(*STREAM), client)
    assert client.data + b"".join(tail.events) == b"".join(STREAM)
    assert tail.done


@pytest.mark.parametrize(
    "pieces",
    [
        [1.0],
        [STREAM[0], 0.2, b": comment\n\n", 0.2, b": comment\n\n", 1.0],
        [*STREAM[:2], 1.0],
        [*STREAM[:4], 1.0],
    ],
)
async def test_an_engine_that_is_silent_for_too_long_is_given_up(pieces):
    with pytest.raises(TimeoutError):
        await relay(Target(*pieces), Client())


async def test_an_engine_that_speaks_now_and_then_is_not():
    pieces = [piece for event in [*STREAM[:2], *[STREAM[2]] * 4, *STREAM[3:]] for piece in (event, 0.3)]
    client = Client()
    await relay(Target(*pieces), client, PhaseLimits(first_output_s=1.5, between_events_s=1.5))
    assert client.data.count(b" answer") == 4


async def test_the_time_that_a_slow_client_takes_is_not_the_engines():
    client = Client(pause_s=0.6)
    tail = await relay(Target(*STREAM), client)
    assert tail.done


async def test_a_stream_that_is_cut_by_the_target_says_so():
    client = Client()
    with pytest.raises(TargetFault) as fault:
        await relay(Cut(*STREAM[:3]), client)
    assert fault.value.cause == "node_lost"
    assert client.data == b"".join(STREAM[:3])


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("together", [True, False])
async def test_behind_the_end_marker_a_target_may_be_cut_or_silent_and_the_answer_is_whole(path, together, monkeypatch):
    monkeypatch.setattr(passage, "LINGER_S", 0.05)
    stream = [b"".join(STREAMS[path])] if together else STREAMS[path]
    patient = PhaseLimits(between_events_s=60.0)
    for target in (Cut(*stream), Target(*stream, 60.0)):
        client = Client()
        tail = await relay(target, client, patient, DIALECTS[path])
        assert client.data + b"".join(tail.events) == b"".join(STREAMS[path])
    assert asyncio.current_task().cancelling() == 0


async def test_an_end_marker_without_an_answer_ends_the_wait_for_one(monkeypatch):
    monkeypatch.setattr(passage, "LINGER_S", 0.05)
    with pytest.raises(TimeoutError):
        await relay(Target(STREAM[0], b"data: [DONE]\n\n", 60.0), Client(), PhaseLimits())


async def test_a_client_that_is_slow_to_read_the_last_output_loses_none_of_it_to_the_end_of_the_whole():
    client = Client(pause_s=60.0)
    with pytest.raises(TimeoutError), within(5.0) as limit:
        limit.end = monotonic() + 0.1
        stream = Target(b"".join(STREAM))
        await relay_stream(stream, CHAT, answer(), client, limit, client_usage=True, limits=PhaseLimits())


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
async def test_an_error_within_an_answer_is_told_at_once_and_behind_what_came_before_it(pause_s):
    client = Client(pause_s)
    client.data = b"!"  # a client that has no room just now
    with pytest.raises(EngineFault):
        await relay(Target(STREAM[1], STREAM[2] + b'data: {"error": "died"}\n\n', 60.0), client)
    assert client.data == b"!" + STREAM[1] + STREAM[2]


async def test_a_whole_answer_is_read_checked_and_counted():
    counted = answer()
    whole = WHOLE[CHAT.path]
    assert await relay_whole(Target(whole[:9], whole[9:]), CHAT, counted, within(5.0), QUICK) == whole
    assert (counted.usage.prompt, counted.usage.completion) == (3, 3)
    assert counted.clock.text_bytes == len("Every answer of")
    assert counted.sample.tok_s is None


async def test_a_whole_answer_passes_with_whatever_most_clients_can_read():
    whole = (
        WHOLE[CHAT.path].replace(b"Every", b"\\ud83c").replace(b'"finish_reason"', b'"logprobs":NaN,"finish_reason"')
    )
    assert await relay_whole(Target(whole), CHAT, counted := answer(), within(5.0), QUICK) == whole
    assert counted.clock.text_bytes == len(" answer of") + 3


async def test_an_answer_with_vectors_is_not_an_empty_one():
    counted = answer()
    await relay_whole(Target(WHOLE[EMBEDDINGS.path]), EMBEDDINGS, counted, within(5.0), QUICK)
    assert counted.clock.text_bytes > 0


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"", b'{"a":'])
async def test_a_whole_answer_that_is_no_object_is_the_targets_fault(body):
    with pytest.raises(TargetFault) as fault:
        await relay_whole(Target(body), CHAT, answer(), within(5.0), QUICK)
    assert fault.value.cause == "protocol"


async def test_an_error_under_a_good_status_is_an_error():
    with pytest.raises(EngineFault):
        await relay_whole(Target(json.dumps({"error": "died"}).encode()), CHAT, answer(), within(5.0), QUICK)


async def test_a_whole_answer_has_a_size_and_a_time():
    with pytest.raises(TargetFault) as fault:
        await read_whole(Target(b"x" * 600, b"x" * 600), within(5.0), QUICK, limit_bytes=1000)
    assert fault.value.cause == "too_large"
    with pytest.raises(TimeoutError), within(5.0) as limit:
        await read_whole(Target(b"x", 1.0), limit, QUICK)
    with pytest.raises(TimeoutError), within(0.5) as limit:
        await read_whole(Target(*[b"x", 0.2] * 9), limit, PhaseLimits(between_events_s=60.0))


def test_a_large_body_has_more_time_to_be_accepted():
    assert QUICK.accept_within_s(0) == QUICK.accept_s
    assert QUICK.accept_within_s(32 * 1024 * 1024) == QUICK.accept_s + 128
