"""A link on a real websocket: heartbeats, pongs, events, and ends."""

import asyncio
import time

import pytest

from brain_node.contract.identity import Identity
from brain_node.contract.limits import HEARTBEAT_S, LINK_AGAIN, PING_S
from brain_node.contract.messages import Drain, Notice
from brain_node.exit_codes import AUTH_REFUSED
from brain_node.link.dial import SLOT_KEEPALIVE_S
from brain_node.link.protocol import LinkProtocol
from brain_node.link.session import LinkSession
from tests.support.node_doubles import Linked, Owner, Runner
from tests.support.raw_coordinator import RawCoordinator


async def test_a_node_says_hello_and_beats_its_heart():
    async with RawCoordinator(heartbeat_s=0.05) as coordinator, Linked(coordinator.url):
        link = await coordinator.link()
        assert link.hello["offer"]["models"][0]["id"] == "brain/mock"
        for _ in range(3):
            assert (await link.next("heartbeat"))["active"] == 0


async def test_pings_are_answered():
    async with RawCoordinator() as coordinator, Linked(coordinator.url):
        link = await coordinator.link()
        for n in (1, 2, 3):
            await link.say("ping", n=n)
            assert (await link.next("pong"))["n"] == n


async def test_a_changed_offer_is_sent_with_a_heartbeat():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        await link.next("heartbeat")
        node.owner.region = "eu-west"
        node.link.offer_changed()
        assert (await link.next("offer"))["offer"]["region"] == "eu-west"
        await link.next("heartbeat")


async def test_notices_and_drains_reach_the_owner():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        await link.say("notice", code="skipped", message="ask above budget")
        await link.say("drain", deadline_s=5.0)
        await link.say("ping", n=1)
        await link.next("pong")
        assert node.owner.told[1:] == [Notice(code="skipped", message="ask above budget"), Drain(deadline_s=5.0)]


@pytest.mark.case("D-10")
async def test_the_token_is_in_the_hello_and_nowhere_else():
    async with RawCoordinator() as coordinator, Linked(coordinator.url, token="NODE-TESTSECRET"):
        link = await coordinator.link()
        await coordinator.slot()
        assert link.hello["token"] == "NODE-TESTSECRET"
        for path, headers in coordinator.requests:
            assert "TESTSECRET" not in path + str(headers)


@pytest.mark.case("D-10")
async def test_a_redirect_is_not_followed_with_the_token():
    async with RawCoordinator() as elsewhere, RawCoordinator() as coordinator:
        coordinator.answer = lambda path: (307, {"Location": f"ws://127.0.0.1:{elsewhere.port}{path}"})
        async with Linked(coordinator.url, token="NODE-TESTSECRET") as node:
            status = await node.until("waiting")
        assert status.fault.code == "redirected"
        assert elsewhere.requests == []


@pytest.mark.case("F-04")
async def test_a_permanent_refusal_ends_the_link_with_its_fault():
    async with RawCoordinator() as coordinator:
        coordinator.on_hello = lambda link: link.say("refused", code="bad_token", message="unknown token", retry=False)
        async with Linked(coordinator.url) as node:
            fault = await asyncio.wait_for(node.task, 20)
    assert (fault.code, fault.exit_code) == ("bad_token", AUTH_REFUSED)
    assert "--token-file" in fault.next_step
    assert len(coordinator.requests) == 1


@pytest.mark.case("D-03")
@pytest.mark.parametrize("status", [503, 429])
async def test_a_busy_coordinator_is_obeyed(status):
    async with RawCoordinator() as coordinator:
        coordinator.answer = lambda path: (status, {"Retry-After": "17"})
        async with Linked(coordinator.url) as node:
            seen = await node.until("waiting")
    assert seen.fault.code == "coordinator_busy"
    assert seen.next_attempt_at - seen.since >= 17.0


@pytest.mark.case("D-03")
async def test_a_close_that_says_try_later_is_not_retried_fast():
    async with RawCoordinator() as coordinator:
        coordinator.on_hello = lambda link: link.socket.close(1013, "too many nodes")
        async with Linked(coordinator.url) as node:
            seen = await node.until("waiting")
    assert (seen.fault.code, seen.fault.slow) == ("coordinator_busy", True)
    assert "too many nodes" in seen.fault.message


async def test_a_node_comes_back_by_itself_with_the_same_id():
    async with RawCoordinator() as coordinator, Linked(coordinator.url):
        first = await coordinator.link()
        await coordinator.stop()
        await coordinator.start()
        second = await coordinator.link()
        assert first.hello["node_id"] == second.hello["node_id"]
        assert first.hello["proof"] != second.hello["proof"]


async def test_a_coordinator_that_was_never_there_is_waited_for():
    coordinator = RawCoordinator()
    await coordinator.start()
    await coordinator.stop()
    async with Linked(coordinator.url) as node:
        assert (await node.until("waiting")).fault.code == "refused"
        await coordinator.start()
        await coordinator.link()
    await coordinator.stop()


async def test_rubbish_from_the_coordinator_ends_the_session_and_not_the_agent():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        await link.socket.send("rubbish")
        assert (await node.until("waiting")).fault.code == "protocol"
        await coordinator.link()


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"\xff" * 50, "no websocket frame"),
        (b"\x81\x03\xff\xfe\xfd", "text that is none"),
        (b"\x81\x7f" + (1 << 30).to_bytes(8, "big"), "more than a message may hold"),
    ],
)
async def test_bytes_that_cannot_be_followed_are_not_taken_for_a_lost_connection(raw, what):
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        link.socket.transport.write(raw)
        fault = (await node.until("waiting")).fault
    assert (fault.code, fault.slow) == ("protocol", True)
    assert what in fault.message


@pytest.mark.case("D-05")
async def test_a_superseded_session_says_so():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        await link.socket.close(1008, "superseded by a newer session of this node")
        fault = (await node.until("waiting")).fault
    assert fault.code == "superseded"
    assert "same key" in fault.next_step
    assert fault.slow


@pytest.mark.case("D-02")
async def test_a_half_open_line_is_noticed_by_its_silence():
    async with RawCoordinator(ping_s=0.05) as coordinator, Linked(coordinator.url) as node:
        await coordinator.link()
        assert (await node.until("waiting")).fault.code == "silent"


@pytest.mark.case("D-02")
def test_all_periods_are_well_within_the_limits_of_common_proxies():
    assert max(HEARTBEAT_S, PING_S, SLOT_KEEPALIVE_S) <= 30


async def test_a_machine_that_slept_checks_its_line_at_once():
    slept = [0.0]
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        link = await coordinator.link()
        await node.until("online")
        session = node.link._session
        assert session is not None
        session._suspended = lambda: slept[0]
        pings = []
        received = link.socket.protocol.receive_data
        link.socket.protocol.receive_data = lambda data: (pings.append(data), received(data))[1]
        slept[0] = session._suspended() + 1e9
        node.link.offer_changed()  # any turn of the loop will do
        await link.next("offer")
    assert any(data[0] & 0x0F == 0x9 for data in pings if data)  # a websocket ping came before it


@pytest.mark.case("D-01")
async def test_a_large_body_on_a_slot_does_not_hold_up_the_link():
    release = asyncio.Event()

    async def wait(*_):
        await release.wait()

    async with RawCoordinator(heartbeat_s=0.02) as coordinator, Linked(coordinator.url, runner=Runner(wait)):
        link, slot = await coordinator.link(), await coordinator.slot()
        sending = asyncio.create_task(slot.job(b"x" * (30 * 1024 * 1024)))
        for n in range(20):
            await link.say("ping", n=n)
            assert (await link.next("pong"))["n"] == n
            await link.next("heartbeat")
        await sending
        release.set()
        assert (await slot.reply()).end["ok"]
        assert not link.closed.is_set()


async def test_the_node_says_goodbye_when_it_leaves():
    async with RawCoordinator() as coordinator:
        async with Linked(coordinator.url):
            link = await coordinator.link()
        await link.socket.wait_closed()
        assert link.socket.close_code == 1001


async def test_a_node_that_is_asked_to_link_again_does_so_and_takes_it_for_no_failure():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        for _ in range(3):
            link = await coordinator.link()
            await link.socket.close(LINK_AGAIN, "other coordinators hold fewer nodes")
        await coordinator.link()
        status = await node.until("waiting")
        assert status.fault is not None
        assert status.fault.code == "link_again"
        assert "other coordinators hold fewer nodes" in status.fault.message
        assert node.link._backoff.failures == 0


async def test_a_session_ends_with_its_first_failing_half():
    class Deaf:
        async def recv(self):
            await asyncio.Event().wait()

    protocol = LinkProtocol(Identity.generate(), None, lambda: (Owner().report(), Owner().offer()), now=-1e9)
    protocol._check_at = time.monotonic()
    with pytest.raises(Exception, match="did not answer"):
        await LinkSession(Deaf(), protocol, Owner()).run()
