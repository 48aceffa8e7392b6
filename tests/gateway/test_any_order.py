"""Requests, clients and nodes in any order of events: slots, queue and receipts come out exact, and no text goes astray."""

import asyncio
import json
import re
from itertools import count
from random import Random
from time import monotonic
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.classes.breaker import BreakerRules
from brain_coord.classes.health import HealthBook
from brain_coord.classes.node_class import NodeClass
from brain_coord.fleet.health import Health
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.attempts import MAX_ATTEMPTS, Limits
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.dialects import CHAT
from brain_coord.gateway.generation import GatewaySettings, Generation
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.gateway.request import parse_request
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.link import slot as slots
from brain_coord.link.slot import Slot, SlotQueue
from brain_coord.routing.vocabulary import CommunityFirst, Plan, ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import load_catalog
from brain_node.contract.messages import ModelOffer, Offer, Report
from tests.support.raw_node import chunk, usage

CATALOG = load_catalog()
MODEL = "qwen/qwen2.5-1.5b-instruct"
REFUSALS = ("busy", "no_engine", "draining", "no_free_slot", "engine_lost")
STEPS = 400


class Wire:
    """A slot's connection, and what a node does at its other end; every piece of text names the job that it answers."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self.state = "idle"
        self.receiver = None
        self.kept: list[bytes | str] | None = None
        """What comes while the coordinator reads no more."""
        self.job = ""
        self.streamed = False

    def hand_to(self, receiver) -> None:
        self.receiver = receiver

    def hold(self) -> None:
        self.kept = []

    def go_on(self) -> None:
        kept, self.kept = self.kept or [], None
        for frame in kept:
            self.say(frame)

    async def send_frames(self, text, data) -> None:
        if self.machine.random.random() < 0.05:
            await asyncio.sleep(0)
        if self.state == "gone":
            raise RuntimeError("closed")
        message = {} if text is None else json.loads(text)
        if message.get("type") == "job":
            assert self.state in ("idle", "confused"), "a slot carries one job"
            self.state, self.job = "sent", message["id"]
            self.streamed = json.loads(data)["stream"]
            self.machine.asked.append(self.job)
        elif message.get("type") == "cancel" and self.state not in ("idle", "confused"):
            assert message["id"] == self.job
            self.state = "cancelled"

    def say(self, frame: bytes | str) -> None:
        if self.kept is not None:
            self.kept.append(frame)
        elif self.state != "gone":
            self.receiver.came(frame)

    def tell(self, kind: str, **members) -> None:
        self.say(json.dumps({"type": kind, "id": self.job, **members}, separators=(",", ":")))

    def event(self, value) -> None:
        self.say(b"data: " + json.dumps(value).encode() + b"\n\n")

    def end(self, cause: str | None = None) -> None:
        members = {} if cause is None else {"cause": cause}
        self.tell("end", ok=cause is None, **members)
        self.state = "idle"

    def hang_up(self) -> None:
        if self.state != "gone":
            self.state = "gone"
            self.receiver.ended()

    def act(self) -> None:
        """What may come next of a job, or, of a node that breaks the protocol, whatever may not."""
        random = self.machine.random
        if self.receiver is None or self.state == "gone":
            return
        if random.random() < self.machine.hostility:
            self.break_the_rules(random.randrange(6))
        elif random.random() < 0.03 or self.state == "confused":
            self.hang_up()
        else:
            getattr(self, f"when_{self.state}")(random)

    def break_the_rules(self, how: int) -> None:
        breaches = (
            lambda: self.say(json.dumps({"type": "end", "id": self.machine.asked[0], "ok": True})),
            lambda: self.say("no message"),
            lambda: self.event(chunk("[of no job]")),
            lambda: self.tell("accepted"),
            lambda: self.tell("head", status=200),
            self.hang_up,
        )
        if self.machine.asked:
            breaches[how]()
        self.state = "gone" if self.state == "gone" else "confused"

    def when_idle(self, random: Random) -> None:
        return

    def when_cancelled(self, random: Random) -> None:
        if random.random() < 0.3:
            self.end("cancelled")
        else:
            self.event(chunk(f"[{self.job}]"))

    def when_sent(self, random: Random) -> None:
        if random.random() < 0.8:
            self.tell("accepted")
            self.state = "accepted"
        else:
            self.end(random.choice(REFUSALS))

    def when_accepted(self, random: Random) -> None:
        status = random.choice([200] * 6 + [400, 401, 429, 500, 503])
        self.tell("head", status=status, content_type="text/event-stream" if self.streamed else "application/json")
        self.state = "answering"
        if status != 200:
            self.say(b'{"error":{"message":"no","type":"x","param":null,"code":null}}')
            self.end()

    def when_answering(self, random: Random) -> None:
        turn = random.random()
        if turn < 0.1:
            self.end(random.choice([None, "engine_lost", "timeout"]))
        elif not self.streamed:
            message = {"role": "assistant", "content": f"[{self.job}]"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.say(json.dumps({"id": "c", "object": "chat.completion", "choices": [choice]}).encode())
            self.end()
        elif turn < 0.7:
            text = f"[{self.job}]" if random.random() < 0.9 else f"[{self.job}]" + " " * slots.READ_AHEAD_BYTES
            for _ in range(random.choice([1, 1, 3])):
                self.event(chunk(text))
        elif turn < 0.75:
            self.event({"error": {"message": "broken"}})
            self.end()
        else:
            self.event(chunk(finish="stop"))
            self.event(usage(1))
            self.say(b"data: [DONE]\n\n")
            self.end()


class Machine:
    """A node whose link and slots come and go."""

    def __init__(self, registry: Registry, random: Random, number: int, hostility: float) -> None:
        self.registry = registry
        self.random = random
        self.hostility = hostility
        self.slots = random.choice([1, 2, 3])
        self.node = registry.add(Node(f"N-{number:016X}", b""))
        self.node.measured.benchmarks[MODEL] = Benchmark(self.node.node_id, MODEL, 50.0, 10.0, None, "", 0.0)
        self.session: Session | None = None
        self.pool = SlotQueue(lambda _: None)
        self.asked: list[str] = []
        self.wires: list[Wire] = []
        self.wanted = 0
        self.serving: list[asyncio.Task[None]] = []

    def join(self) -> None:
        if self.session is not None:
            return
        self.node.health = Health()  # who fails too often would take no part any more
        ticket = f"{self.node.node_id}-{self.random.random()}"
        self.pool = SlotQueue(self.want)
        self.session = Session(ticket, SimpleNamespace(), self.pool, ticket, "", monotonic(), monotonic())
        offer = Offer(models=(ModelOffer(id=MODEL, loaded=True),), slots=self.slots)
        self.registry.connect(self.node, self.session, Report(), offer, ())

    def leave(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self.registry.disconnect(self.node, session, "gone")

    def want(self, count: int) -> None:
        self.wanted += count

    def open_slots(self) -> None:
        while self.wanted and self.session is not None:
            self.wanted -= 1
            self.wires.append(wire := Wire(self))
            self.serving.append(asyncio.ensure_future(self._serve(wire, self.pool)))

    async def _serve(self, wire: Wire, pool: SlotQueue) -> None:
        await Slot(wire).serve(pool)
        wire.state = "gone"

    def act(self) -> None:
        if open_wires := [wire for wire in self.wires if wire.state not in ("gone", "idle")]:
            self.random.choice(open_wires).act()


class Client:
    """Reads, or stops for a while, or leaves."""

    more_lines = b""

    def __init__(self) -> None:
        self.flow = self
        self.write_paused = False
        self.stalled = False
        self.left = False
        self.data = b""
        self.ends = 0
        self._room = asyncio.Event()
        self._gone = lambda: None

    async def drain(self) -> None:
        await self._room.wait()

    def pause(self) -> None:
        self.write_paused = not self.left
        self._room.clear()

    def resume(self) -> None:
        self.write_paused = False
        self._room.set()

    def leave(self, *, stalled: bool) -> None:
        self.left, self.stalled = True, stalled
        self.resume()
        if not self.ends:
            self._gone()

    def watch(self, gone) -> None:
        self._gone = gone

    def begin(self, status: int, lines: bytes, length_bytes: int | None = None) -> None:
        return

    def write(self, body: bytes, *, more: bool) -> None:
        if not self.left:
            assert not self.ends, "nothing follows the end"
            self.data += body
            self.ends += not more


class Journal:
    """Commits when it is told to."""

    def __init__(self) -> None:
        self.drafts: dict[str, list] = {}
        self._waiting: list = []

    async def record(self, request_id: str, draft) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((request_id, draft, done))
        await done

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for request_id, draft, done in waiting:
            self.drafts.setdefault(request_id, []).append(draft())
            if not done.done():
                done.set_result(None)


class World:
    """A coordinator's gateway over a few nodes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.registry = Registry(15.0)
        self.room = WaitingRoom(random.choice([2, 50]))
        self.registry.on_capacity.append(self.room.capacity)
        book = HealthBook(BreakerRules(faults=random.choice([2, 1000]), first_open_s=0.02))
        book.on_change.append(lambda delay_s: asyncio.get_running_loop().call_later(delay_s, self.room.capacity))
        native = NodeClass(ResourceClass.NATIVE_NETWORK, self.registry, CATALOG, operator=False, health=book)
        self.decider = Decider([native], CATALOG, CommunityFirst.OFF)
        self.journal = Journal()
        hostility = random.choice([0.0, 0.0, 0.05])
        self.machines = [Machine(self.registry, random, at, hostility) for at in range(random.choice([1, 2, 3]))]
        silence_s = random.choice([0.03, 5.0, 5.0])
        phases = PhaseLimits(accept_s=silence_s, first_output_s=silence_s, between_events_s=silence_s)
        self.settings = GatewaySettings(
            limits=Limits(phases=phases, whole_s=random.choice([0.2, 10.0])), queue_s=0.5, keepalive_s=0.05
        )
        self._numbers = count()
        self.requests: list[tuple[Generation, Client, asyncio.Task[None]]] = []

    @property
    def running(self) -> list[tuple[Generation, Client]]:
        return [(made, client) for made, client, task in self.requests if not task.done()]

    def ask(self) -> None:
        body = {"model": MODEL, "stream": self.random.random() < 0.7, "privacy": "PUBLIC", "messages": []}
        body["messages"] = [{"role": "user", "content": "hello"}]
        number = next(self._numbers)
        asked = parse_request(f"req-{number}", CHAT, json.dumps(body).encode(), {})
        client = Client()

        async def live() -> None:
            made = Generation(
                asked,
                Caller(f"k-{number % 3}", Plan.PAID),
                client,
                began=monotonic(),
                decider=self.decider,
                waiting=self.room,
                journal=self.journal,
                settings=self.settings,
                limits=DEFAULT_PLANS[Plan.PAID],
            )
            self.requests.append((made, client, asyncio.current_task()))
            await made.run()

        self._begun = asyncio.ensure_future(live())

    def step(self) -> None:
        random, machine = self.random, self.random.choice(self.machines)
        turn = random.random()
        running = self.running
        if turn < 0.1 and len(running) < 12:
            self.ask()
        elif turn < 0.2 and running:
            made, client = random.choice(running)
            random.choice(
                [
                    lambda: client.leave(stalled=random.random() < 0.3),
                    client.pause,
                    client.resume,
                    lambda: made.interrupt("draining"),
                ]
            )()
        elif turn < 0.22:
            machine.leave()
        elif turn < 0.3:
            machine.join()
        elif turn < 0.4:
            self.journal.commit()
            machine.open_slots()
        else:
            machine.act()

    async def run(self) -> None:
        for machine in self.machines:
            machine.join()
        for _ in range(STEPS):
            self.step()
            for _ in range(self.random.choice([0, 1, 2, 6])):
                await asyncio.sleep(0)
            self.counts_are_possible()
        await self.comes_to_rest()
        self.nothing_is_left_behind()
        for made, client, task in self.requests:
            task.result()
            self.ended_as_it_should(made, client)
        for machine in self.machines:
            machine.leave()
            await asyncio.gather(*machine.serving)

    async def comes_to_rest(self) -> None:
        async with asyncio.timeout(60):
            while self.running:
                for _, client in self.running:
                    client.resume()
                for machine in self.machines:
                    machine.hostility = 0.0
                    machine.open_slots()
                    machine.act()
                self.journal.commit()
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)

    def counts_are_possible(self) -> None:
        running = len(self.running)
        for machine in self.machines:
            load = machine.node.load
            assert 0 <= load.going_on <= load.jobs <= machine.slots
        assert sum(machine.node.load.jobs for machine in self.machines) <= running
        assert len(self.room) <= running

    def nothing_is_left_behind(self) -> None:
        assert len(self.room) == 0
        for machine in self.machines:
            assert (machine.node.load.jobs, machine.node.load.going_on) == (0, 0)
            if machine.session is not None:
                idle = 0
                while (slot := machine.pool.idle()) is not None:
                    assert (slot.job_id, slot.closed) == (None, False)
                    idle += 1
                assert idle == machine.pool.open, "every connection that is open can be had"

    def ended_as_it_should(self, made: Generation, client: Client) -> None:
        record, request_id = made.record, made.record.request.request_id
        drafts = self.journal.drafts.get(request_id, [])
        sent = [job for machine in self.machines for job in machine.asked if job.rpartition("-")[0] == request_id]
        assert len(drafts) == bool(record.result.reached) >= bool(sent), "one receipt for what reached a node"
        assert len(sent) == len(set(sent)) <= MAX_ATTEMPTS
        said = {job.decode() for job in re.findall(rb"\[(req-\d+-\d+)\]", client.data)}
        assert len(said) <= 1 and said <= set(sent), "text of one answer alone, and of its own"
        assert client.left or client.ends == 1
        for draft in drafts:
            assert draft.canonical()
            assert (draft.outcome, draft.attempts) == (record.outcome, record.result.attempts)
            assert (draft.outcome == "completed") is (draft.attempts[-1].cause is None)
        if record.outcome != "completed":
            assert b"[DONE]" not in client.data
        elif not client.left:
            assert client.data.endswith(b"data: [DONE]\n\n") or b'"brain":' in client.data
        assert record.error_code != "internal"
        assert client.left or record.outcome not in ("client_cancelled", "slow_client")


@pytest.fixture(autouse=True)
def a_node_answers_a_cancel_soon(monkeypatch):
    monkeypatch.setattr(slots, "CANCEL_S", 0.05)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_comes_in_whatever_order_slots_queue_and_receipts_are_exact(seed):
    asyncio.run(World(Random(seed)).run())
