"""What a Brain Node as a target says and learns of the jobs that it was given."""

import pytest

from brain_coord.classes import node_target
from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, TargetFault
from brain_coord.fleet import registry as registry_module
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.link.slot import SlotQueue
from brain_coord.link.slot_text import DONE, TAKEN, Over
from brain_coord.measure.speed import StreamClock, StreamSample, TokenCount
from brain_coord.routing.vocabulary import ResourceClass
from brain_node.contract.messages import Offer, Report

JOB = JobSpec("j-1", "m", "/v1/chat/completions", b"{}", 60.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in (node_target, registry_module):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


class ScriptedSlot:
    """Says what it was told to say, one answer after the other."""

    closed = False
    job_id: str | None = None

    def __init__(self, *answers) -> None:
        self._answers = list(answers)

    async def send_job(self, job_id, *_) -> None:
        self.job_id = job_id

    async def read(self, take=None):
        answer = self._answers.pop(0)
        if type(answer) is Over:
            self.job_id = None
        return answer

    async def cancel(self) -> None:
        self.job_id = None

    def give_back(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def a_node(registry: Registry, slots: SlotQueue) -> Node:
    node = registry.add(Node("N-" + "1" * 16, b""))
    session = Session("1", None, slots, "1", "", 0.0, 0.0)
    registry.connect(node, session, Report(), Offer(slots=4), ())
    return node


def a_target(*answers) -> tuple[Registry, NodeTarget]:
    registry, slots = Registry(15.0), SlotQueue(lambda _: None)
    slots.offer(ScriptedSlot(*answers))
    node = a_node(registry, slots)
    return registry, NodeTarget(registry, node, "m", ResourceClass.NATIVE_NETWORK, ClassSamples())


def sample(dispatched: float, ended: float) -> StreamSample:
    clock = StreamClock(dispatched)
    clock.output(dispatched + 0.1, 40)
    clock.output(ended, 400)
    return StreamSample(clock, TokenCount(100, "usage"), 50.0)


async def test_the_load_is_that_of_the_time_while_the_job_ran_however_much_later_its_outcome_is_told(
    clock, monkeypatch
):
    registry, target = a_target(TAKEN, ReplyHead(200, "text/event-stream"), DONE)
    node, loads = target._node, []
    monkeypatch.setattr(type(registry.lessons), "learn", lambda *_, load, **__: loads.append(load))
    registry.reserve(node)
    exchange = await target.start(JOB)
    clock.now += 1.0
    await exchange.close()
    registry.release(node)
    clock.now += 9.0
    target.outcome("completed", first_output_ms=100.0, total_ms=1000.0, stream=sample(100.0, 101.0))
    assert loads == [pytest.approx(2.0)]


async def test_the_causes_of_the_protocol_are_told_as_the_node_gave_them(clock):
    _, target = a_target(Over(ok=False, cause="busy"))
    with pytest.raises(TargetFault) as refused:
        await target.start(JOB)
    assert (refused.value.cause, refused.value.ran, refused.value.blame) == ("busy", False, False)
    _, target = a_target(Over(ok=False, cause=None))
    with pytest.raises(TargetFault) as refused:
        await target.start(JOB)
    assert (refused.value.cause, refused.value.blame) == ("refused", True)
