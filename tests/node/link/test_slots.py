"""Slot connections on real websockets: one job each, opened ahead of demand, gone with their session."""

import asyncio

import pytest

from brain_node.link import dial, slots
from brain_node.link.slot_pool import SlotPool
from tests.support.eventually import eventually
from tests.support.node_doubles import Linked, Owner, Runner
from tests.support.raw_coordinator import RawCoordinator
from tests.support.tcp_relay import TcpRelay


class Held(Runner):
    """Jobs that run until released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

        async def wait(*_):
            await self.release.wait()

        super().__init__(wait)


async def test_the_ticket_travels_in_a_header():
    async with RawCoordinator() as coordinator, Linked(coordinator.url):
        link, slot = await coordinator.link(), await coordinator.slot()
        assert slot.ticket == f"ticket-{link.nonce}"
        path, _ = coordinator.requests[-1]
        assert path == "/node/v1/slot"


async def test_spares_stay_ahead_of_the_running_jobs():
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=4), runner):
        first, _second = await coordinator.slot(), await coordinator.slot()
        await first.job(b"{}")
        third = await coordinator.slot()
        await third.job(b"{}")
        await coordinator.slot()
        assert len(coordinator.open_slots) == 4


async def test_never_more_connections_than_slots():
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=3)) as node:
        link = await coordinator.link()
        await link.say("open_slots", n=100)
        for _ in range(3):
            await coordinator.slot()
        await link.say("ping", n=1)
        await link.next("pong")
        assert node.link.slots is not None
        assert node.link.slots.pool.to_open() == 0
        assert len(coordinator.open_slots) == 3


async def test_the_coordinator_can_ask_for_more():
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=8)):
        link = await coordinator.link()
        await coordinator.slot()
        await coordinator.slot()
        await link.say("open_slots", n=3)
        for _ in range(3):
            await coordinator.slot()


async def test_a_connection_is_reused_for_one_job_after_another():
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        slot = await coordinator.slot()
        for n in range(20):
            assert (await slot.ask(b"%d" % n)).end["ok"]
        assert node.runner.bodies == [b"%d" % n for n in range(20)]


@pytest.mark.case("D-07")
@pytest.mark.parametrize("megabytes", [3, 12, 32])
async def test_bodies_arrive_whole(megabytes):
    body = bytes(range(256)) * (megabytes * 4096)
    async with RawCoordinator() as coordinator, Linked(coordinator.url) as node:
        slot = await coordinator.slot()
        assert (await slot.ask(body)).end["ok"]
        assert node.runner.bodies == [body]


@pytest.mark.case("D-07")
async def test_a_body_above_the_limit_costs_one_slot_and_never_the_link():
    runner = Held()
    async with RawCoordinator(limits={"body_bytes": 1000}) as coordinator, Linked(coordinator.url, runner=runner):
        link, busy, slot = await coordinator.link(), await coordinator.slot(), await coordinator.slot()
        running = await busy.job(b"{}")
        await slot.say_job("big", 1001)
        await slot.socket.wait_closed()
        assert slot.socket.close_code == 1008
        await link.say("ping", n=1)
        await link.next("pong")
        runner.release.set()
        reply = await busy.reply()
        assert (reply.end["id"], reply.end["ok"]) == (running, True)


async def test_a_cancel_ends_the_job_and_frees_the_connection():
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=runner):
        slot = await coordinator.slot()
        job = await slot.job(b"{}")
        assert (await slot.next())["type"] == "accepted"
        await slot.cancel(job)
        assert await slot.next() == {"type": "end", "id": job, "ok": False, "cause": "cancelled"}
        assert runner.cancelled == [job]
        runner.release.set()
        assert (await slot.ask(b"{}")).end["ok"]


async def test_a_cancel_right_behind_the_body_still_gets_its_end():
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=Held()):
        slot = await coordinator.slot()
        for _ in range(20):
            job = await slot.job(b"{}")
            await slot.cancel(job)
            assert (await slot.reply()).end == {"type": "end", "id": job, "ok": False, "cause": "cancelled"}


@pytest.mark.case("D-11")
async def test_a_dropped_slot_is_exactly_one_dropped_job():
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=runner):
        first, second = await coordinator.slot(), await coordinator.slot()
        lost, kept = await first.job(b"{}"), await second.job(b"{}")
        await eventually(lambda: len(runner.started) == 2)
        first.socket.transport.abort()
        await eventually(lambda: runner.cancelled == [lost])
        runner.release.set()
        assert (await second.reply()).end["id"] == kept


@pytest.mark.case("D-11")
async def test_a_slot_that_drops_during_the_body_never_starts_the_job():
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=runner):
        slot = await coordinator.slot()
        await slot.say_job("half", 100)
        await slot.socket.send(b"x" * 50)
        slot.socket.transport.abort()
        again = await coordinator.slot()
        await again.job(b"{}", id="whole")
        await eventually(lambda: runner.started)
        assert runner.started == ["whole"]


async def test_all_slots_and_their_jobs_end_with_the_session():
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=runner):
        link, slot = await coordinator.link(), await coordinator.slot()
        job = await slot.job(b"{}")
        await eventually(lambda: runner.started)
        link.socket.transport.abort()
        await slot.socket.wait_closed()
        assert runner.cancelled == [job]
        new = await coordinator.link()
        assert (await _slot_with(coordinator, f"ticket-{new.nonce}")) is not None


async def _slot_with(coordinator: RawCoordinator, ticket: str):
    async with asyncio.timeout(20):
        while (slot := await coordinator.slot()).ticket != ticket:
            pass
    return slot


async def test_a_node_that_offers_nothing_holds_no_slots_and_opens_them_when_it_does():
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=0)) as node:
        link = await coordinator.link()
        await link.next("heartbeat")
        assert coordinator.open_slots == []
        node.owner.slots = 2
        node.link.offer_changed()
        await coordinator.slot()


@pytest.mark.case("D-03")
async def test_slots_that_cannot_be_opened_are_not_tried_in_a_tight_loop():
    async with RawCoordinator(heartbeat_s=0.02) as coordinator:
        coordinator.answer = lambda path: (401, {}) if path.endswith("slot") else None
        async with Linked(coordinator.url) as node:
            link = await coordinator.link()
            for _ in range(30):
                await link.next("heartbeat")
            tried = [path for path, _ in coordinator.requests if path.endswith("slot")]
            assert 1 <= len(tried) <= 4  # two at once, and at most one more round
            assert node.link.slots.fault.code == "http_status"
            assert node.link.status.state == "online"


async def test_an_idle_surplus_is_closed_after_a_while(monkeypatch):
    monkeypatch.setattr("brain_node.link.slot_pool.IDLE_S", 0.05)
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=8)):
        link = await coordinator.link()
        await link.say("open_slots", n=6)
        slots = [await coordinator.slot() for _ in range(6)]
        await eventually(lambda: len(coordinator.open_slots) == 2)
        closed = [slot for slot in slots if slot not in coordinator.open_slots]
        assert all(slot.socket.close_code == 1000 for slot in closed)


@pytest.mark.case("D-02")
async def test_a_job_that_comes_just_as_its_idle_connection_is_closed_is_done(monkeypatch):
    runner = Held()
    async with RawCoordinator() as coordinator, Linked(coordinator.url, Owner(slots=2), runner) as node:
        slot, _ = await coordinator.slot(), await coordinator.slot()
        held = node.link.slots
        choose = SlotPool.to_close
        job = b'{"type":"job","id":"late","model":"brain/mock","path":"/v1/chat/completions","deadline_s":9,"body_bytes":0}'

        def chosen(pool: SlotPool, now: float) -> list[int]:
            closing = choose(pool, now)
            if closing and not runner.started:  # what the loop finds in its sockets before it goes on
                arrived = held._sockets[closing[0]].data_received
                asyncio.get_running_loop().call_soon(arrived, b"\x81\x7e" + len(job).to_bytes(2, "big") + job)
            return closing

        monkeypatch.setattr(SlotPool, "to_close", chosen)
        held.set_slots(1)
        await eventually(lambda: runner.started == ["late"])
        runner.release.set()
        reply = await slot.reply()
        assert (reply.end["id"], reply.end["ok"]) == ("late", True)


async def test_idle_lines_outlive_a_proxy_that_cuts_quiet_ones(monkeypatch):
    monkeypatch.setattr(dial, "SLOT_KEEPALIVE_S", 0.1)
    async with (
        RawCoordinator(heartbeat_s=0.1) as coordinator,
        TcpRelay(coordinator.port, idle_s=0.8) as relay,
        Linked(f"http://127.0.0.1:{relay.port}"),
    ):
        link, slot = await coordinator.link(), await coordinator.slot()
        for _ in range(20):
            await link.next("heartbeat")
        assert relay.cut == 0
        assert (await slot.ask(b"{}")).end["ok"]


@pytest.mark.case("D-02")
async def test_a_line_that_a_proxy_cut_is_replaced():
    async with (
        RawCoordinator() as coordinator,
        TcpRelay(coordinator.port) as relay,
        Linked(f"http://127.0.0.1:{relay.port}"),
    ):
        await coordinator.link()
        relay.drop_all()
        await coordinator.link()


async def test_a_runner_that_fails_costs_its_job_only():
    class Broken(Runner):
        def start(self, *_):
            raise RuntimeError("bug")

    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=Broken()):
        slot = await coordinator.slot()
        for _ in range(2):
            assert (await slot.ask(b"{}")).end["cause"] == "engine_lost"


async def test_slots_that_fail_altogether_end_the_session_and_a_new_one_works(monkeypatch):
    broken = [True]
    adjust = slots.Slots._adjust

    def adjust_or_fail(self, now):
        if broken:
            broken.clear()
            raise RuntimeError("bug")
        adjust(self, now)

    monkeypatch.setattr(slots.Slots, "_adjust", adjust_or_fail)
    async with RawCoordinator() as coordinator, Linked(coordinator.url):
        await coordinator.link()
        await coordinator.link()
        assert (await (await coordinator.slot()).ask(b"{}")).end["ok"]
