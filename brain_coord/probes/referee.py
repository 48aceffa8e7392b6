"""Ask nodes one and the same thing, and settle who is right; only idle slots are used, and only the one that is wrong pays."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Literal

import structlog

from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import TargetFault
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Kind, Registry
from brain_coord.gateway.attempts import ERROR_BODY_BYTES
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.dialects import CHAT, DIALECTS
from brain_coord.gateway.relay import EngineFault, PhaseLimits, engine_error, read_whole
from brain_coord.measure.transcript import Transcript, read_transcript
from brain_coord.probes.runner import job_of, run_probe
from brain_coord.probes.verdict import Given, Verdict, judge
from brain_coord.routing.vocabulary import ResourceClass

log = structlog.get_logger("brain.probe")

TIMEOUT_S: Final = 120.0
PEER_PATIENCE_S: Final = 60.0
LOOK_S: Final = 1.0

Result = Literal["completed", "failed", "timed_out", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node is asked.

    Attributes:
        model: by its catalog id.
        body: the request's bytes, exactly as each node gets them.
        path: the route.
        streamed: whether the answer is a stream.
    """

    model: str
    body: bytes
    path: str = CHAT.path
    streamed: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a transcript when it completed, else why not."""

    result: Result
    said: Transcript | None = None
    cause: str | None = None


def fit_peers(registry: Registry, asked: Asked, without: Sequence[str]) -> list[Node]:
    """Nodes that could be asked the same now or in a moment: those the operator vouches for first, else by chance."""
    peers = [
        node
        for node in registry.nodes.values()
        if node.node_id not in without
        and node.session is not None  # our own clock and slots; another coordinator's nodes are asked there
        and node.state in ("ONLINE", "BUSY")
        and asked.model in node.measured.credited
        and asked.model in node.models
        and asked.model in node.loaded
    ]
    random.shuffle(peers)
    peers.sort(key=lambda node: not (node.trusted or node.operator))
    return peers


def idle(node: Node) -> bool:
    """Whether asking it costs no customer a slot."""
    return node.free > 0 and (node.active == 0 or node.free > 1)


@dataclass(slots=True)
class Referee:
    """Runs requests of our own on nodes, and records what they come to."""

    registry: Registry
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))

    async def ask(self, node: Node, asked: Asked) -> Reply:
        """One node's answer. Never raises for what the node does; a node that is busy or leaving is not to blame."""
        target = NodeTarget(self.registry, node, asked.model, ResourceClass.NATIVE_NETWORK, ClassSamples())
        try:
            async with self._gate:
                data = await self._run(target, asked)
        except TargetFault as fault:
            if not fault.blame or (node.session is None and not fault.ran):
                return Reply("inconclusive", cause=fault.cause)
            return Reply("timed_out" if fault.cause in ("timeout", "not_accepted") else "failed", cause=fault.cause)
        except EngineFault as fault:
            refused = fault.status is not None and (fault.status < 500 or fault.status == 503)
            return Reply("inconclusive" if refused else "failed", cause=f"status_{fault.status}")
        return Reply("completed", read_transcript(data, streamed=asked.streamed))

    async def _run(self, target: NodeTarget, asked: Asked) -> bytes:
        dialect = DIALECTS[asked.path]
        if asked.streamed:
            return (await run_probe(target, asked.body, timeout_s=TIMEOUT_S, dialect=dialect)).data
        limits = PhaseLimits(accept_s=10.0, first_output_s=TIMEOUT_S, between_events_s=TIMEOUT_S)
        try:
            with Deadline(monotonic() + TIMEOUT_S, every_s=TIMEOUT_S) as limit:
                exchange = await target.start(job_of(asked.path, asked.model, asked.body))
                try:
                    head = await exchange.head()
                    size = ERROR_BODY_BYTES if head.status >= 400 else ERROR_BODY_BYTES * 4
                    data = await read_whole(exchange, limit, limits, size)
                finally:
                    await exchange.close()
        except TimeoutError:
            raise TargetFault("timeout", f"no whole answer within {TIMEOUT_S:g} s", ran=True) from None
        if head.status >= 400:
            raise engine_error(head.status, data)
        return data

    async def settle(self, given: list[Given], asked: Asked) -> Verdict:
        """Ask one peer, and where it does not agree a third, and record who was right and who was wrong.

        Args:
            given: the answers so far, at least one.
            asked: what they answer.
        """
        while len(given) < 3 and (peer := await self._peer(asked, [each.node_id for each in given])) is not None:
            reply = await self.ask(peer, asked)
            if reply.result == "inconclusive":
                break
            self.record(peer, "shadow", reply, asked.model)
            if reply.said is None:
                continue
            given.append(Given(peer.node_id, reply.said.whole))
            if judge(given).decided:
                break
        verdict = judge(given)
        self._record_verdict(verdict, given, asked.model)
        return verdict

    async def _peer(self, asked: Asked, without: Sequence[str]) -> Node | None:
        """An idle node that could answer the same; waited for a while."""
        until = monotonic() + PEER_PATIENCE_S
        while peers := fit_peers(self.registry, asked, without):
            found = next((node for node in peers if idle(node)), None)
            if found is not None or monotonic() > until:
                return found
            await asyncio.sleep(LOOK_S)
        return None

    def record(self, node: Node, kind: Kind, reply: Reply, model: str) -> None:
        """A run of ours counts like a customer's job, unless it says nothing about the node."""
        if reply.result != "inconclusive":
            self.registry.record(node, kind, reply.result, model, reply.cause)

    def _record_verdict(self, verdict: Verdict, given: Sequence[Given], model: str) -> None:
        names = ", ".join(each.node_id for each in given)
        if not verdict.decided:
            if len(given) > 1:
                log.info("answers differ, undecided", model=model, nodes=names)
            return
        for node_id, result in [
            *((node_id, "matched") for node_id in verdict.matched),
            *((node_id, "mismatched") for node_id in verdict.mismatched),
        ]:
            node = self.registry.get(node_id)
            if node is not None:
                self.registry.record(node, "shadow", result, model, f"compared: {names}")
        if verdict.mismatched:
            log.warning("an answer differs from its peers'", model=model, node=verdict.mismatched[0], compared=names)
