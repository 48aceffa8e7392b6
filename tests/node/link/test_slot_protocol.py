"""One slot's frames, without sockets."""

import orjson
import pytest

from brain_node.contract.messages import MessageError
from brain_node.link.slot_protocol import Answer, CancelJob, SlotProtocol


def job(body_bytes: int, job_id: str = "j1") -> str:
    fields = {"model": "m", "path": "/v1/chat/completions", "deadline_s": 9.0, "body_bytes": body_bytes}
    return orjson.dumps({"type": "job", "id": job_id, **fields}).decode()


def feed(slot: SlotProtocol, frame: str | bytes):
    return slot.text(frame) if isinstance(frame, str) else slot.bytes(frame)


def cancel(job_id: str = "j1") -> str:
    return orjson.dumps({"type": "cancel", "id": job_id}).decode()


@pytest.fixture
def slot() -> SlotProtocol:
    return SlotProtocol(body_limit_bytes=100)


def test_a_job_starts_when_its_whole_body_is_there(slot):
    assert feed(slot, job(5)) is None
    assert feed(slot, b"abc") is None
    assert feed(slot, b"de") == (b"abc", b"de")
    assert slot.job.id == "j1"


def test_a_job_without_a_body_starts_at_once(slot):
    assert feed(slot, job(0)) == ()


def test_the_slot_is_free_again_after_the_job(slot):
    feed(slot, job(0))
    assert slot.job is not None
    slot.finished()
    assert slot.job is None
    assert feed(slot, job(0, "j2")) == ()


def test_a_cancel_during_the_body_ends_the_job_before_it_runs(slot):
    feed(slot, job(5))
    feed(slot, b"ab")
    answer = feed(slot, cancel())
    assert answer == Answer("j1", "cancelled")
    assert slot.job is None


def test_a_cancel_of_the_running_job_is_passed_on(slot):
    feed(slot, job(0))
    assert feed(slot, cancel()) == CancelJob("j1")


@pytest.mark.case("D-11")
def test_a_cancel_that_crossed_the_end_on_its_way_changes_nothing(slot):
    feed(slot, job(0))
    slot.finished()
    assert feed(slot, cancel()) is None
    feed(slot, job(0, "j2"))
    assert feed(slot, cancel("j1")) is None


def test_unknown_messages_are_ignored(slot):
    assert feed(slot, '{"type": "from_the_future"}') is None


@pytest.mark.parametrize(
    "frames",
    [
        [b"x"],
        [job(2), b"abc"],
        [job(0), b"x"],
        [job(3), job(3)],
        [job(101)],
        ['{"type": "pong", "n": 1}'],
        ["nonsense"],
    ],
    ids=["stray", "too long", "while running", "twice", "above the limit", "wrong place", "nonsense"],
)
def test_what_breaks_the_protocol_is_an_error(slot, frames):
    with pytest.raises(MessageError):
        for frame in frames:
            feed(slot, frame)
