"""Who gets an engine, and the counts of it."""

import asyncio

import pytest

from brain_node.agent.desk import Desk
from brain_node.contract.messages import Job, ModelOffer
from brain_node.relay.lease import Endpoint

JOB = Job(id="j", model="m", path="/v1/chat/completions", deadline_s=1.0, body_bytes=0)


class Lease:
    endpoint = Endpoint("http://x", None, "m")

    def __init__(self, over: list[str]) -> None:
        self.finished = over.append

    def progress(self) -> None:
        pass


class Source:
    kind = "test"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.over: list[str] = []
        self.refusal: str | None = None

    def offers(self):
        return [ModelOffer(id="m", slots=self.slots)]

    def claim(self, job):
        return self.refusal or Lease(self.over)


@pytest.mark.parametrize(("limit", "slots"), [(None, 4), (2, 2), (9, 4)])
def test_slots_are_what_engines_bear_within_the_operators_limit(limit, slots):
    assert Desk(Source(4), limit).slots == slots


def test_above_the_operators_limit_is_busy():
    desk = Desk(Source(4), 1)
    lease = desk.claim(JOB)
    assert desk.claim(JOB) == "busy"
    lease.finished("ok")
    assert desk.claim(JOB) != "busy"


def test_the_sources_own_refusal_is_passed_on():
    source = Source(4)
    source.refusal = "no_engine"
    desk = Desk(source, None)
    assert desk.claim(JOB) == "no_engine"
    assert desk.refusals == {"no_engine": 1}


def test_each_asker_takes_back_only_its_own_drain():
    desk = Desk(Source(4), None)
    desk.closed_by |= {"operator", "coordinator"}
    desk.closed_by.discard("coordinator")
    assert desk.claim(JOB) == "draining"
    desk.closed_by.discard("operator")
    assert desk.claim(JOB) != "draining"


@pytest.mark.case("E-01")
async def test_counts_return_to_nothing_whatever_the_outcome():
    source = Source(9)
    desk = Desk(source, None)
    leases = [desk.claim(JOB) for _ in range(5)]
    waiting = asyncio.create_task(desk.idle())
    await asyncio.sleep(0)
    assert (desk.active, waiting.done()) == (5, False)
    outcomes = ["ok", "cancelled", "engine_lost", "timeout", "engine_refused"]
    for lease, outcome in zip(leases, outcomes, strict=True):
        lease.finished(outcome)
    await waiting
    assert desk.active == 0
    assert source.over == outcomes
    assert desk.outcomes == dict.fromkeys(outcomes, 1)
