"""The agent's words to the coordinator, whatever its source says."""

import pytest

from brain_node.agent.agent import Agent, Parts
from brain_node.agent.hardware import Hardware
from brain_node.agent.source import one_line
from brain_node.contract.identity import Identity
from brain_node.contract.limits import FRAME_BYTES, MAX_MODELS, MAX_SLOTS
from brain_node.contract.messages import (
    EngineClaim,
    Heartbeat,
    Limits,
    ModelOffer,
    OfferChanged,
    Welcome,
    decode,
    encode,
)
from brain_node.link.dial import Dialer
from brain_node.link.url import parse_coordinator
from brain_node.settings import resolve


class Source:
    """Says too much of everything."""

    kind, uses_cards, version = "test", False, "1\n2"

    def offers(self):
        return [ModelOffer(id=f"m/{n}", slots=MAX_SLOTS) for n in range(MAX_MODELS + 10)]

    def claims(self):
        return [EngineClaim(model=f"m/{n}", state="ready") for n in range(MAX_MODELS + 10)]


@pytest.fixture
def agent(tmp_path):
    settings = resolve({"region": "eu"}, {}, tmp_path)
    url = parse_coordinator("http://127.0.0.1:9")
    hardware = Hardware({})
    yield Agent(Parts(settings, Identity.generate(), Dialer(url), Source(), hardware))
    hardware.close()


async def test_offers_and_heartbeats_stay_within_the_limits_of_the_wire(agent):
    offer = agent.offer()
    assert (len(offer.models), offer.slots) == (MAX_MODELS, MAX_SLOTS)
    assert isinstance(decode(encode(OfferChanged(offer=offer, report=agent.report()))), OfferChanged)
    beat = decode(encode(agent.heartbeat()))
    assert isinstance(beat, Heartbeat)
    assert len(beat.engines) == MAX_MODELS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines", "two lines"),
        ("tab\tand\x1b[31mcolour", "tab and [31mcolour"),
        ("x" * 999, "x" * 256),
        ("ok", "ok"),
    ],
)
def test_causes_are_claims_that_the_other_side_keeps(text, line):
    assert one_line(text) == line
    refused = []
    beat = decode(encode(Heartbeat(engines=(EngineClaim(model="m", state="failed", cause=one_line(text)),))), refused)
    assert beat.engines[0].cause == line
    assert refused == []


async def test_a_reader_that_fails_leaves_the_last_reading_in_force(agent, monkeypatch):
    await agent.hardware.sample()
    before = agent.report()

    async def fail(*_):
        raise RuntimeError("driver")

    monkeypatch.setattr(agent.hardware._feed, "get", fail)
    await agent.hardware.sample()
    assert agent.report() == before


@pytest.mark.parametrize(("said", "sent"), [(2048, 2048), (4 * FRAME_BYTES, FRAME_BYTES)])
async def test_the_largest_frame_is_what_the_coordinator_of_this_session_takes(agent, said, sent):
    for frame_bytes in (1024, said):
        limits = Limits(body_bytes=1, frame_bytes=frame_bytes, spare_slots=1)
        agent.welcomed(Welcome(session="s", heartbeat_s=15.0, ping_s=20.0, slot_ticket="t", limits=limits))
    assert agent.relay.frame_bytes == sent
