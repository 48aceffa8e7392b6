"""The receiving side of hops: jobs of other coordinators for nodes that are linked here, and what they saw of those nodes."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson
import structlog

from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Exchange, JobSpec, ReplyHead, TargetFault, Waiting
from brain_coord.cluster.frames import DATA, END, FRAMES, HEAD, frame, told
from brain_coord.cluster.hop_client import ALIVE, ALIVE_PATH, EVENT_PATH, EVENT_S, JOB_PATH, proof_of
from brain_coord.cluster.secret import Doorkeeper, NotOurs, same_body
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.bodies import BodyBudget, BodyLease
from brain_coord.gateway.dialects import DIALECTS
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.http import (
    ClientGone,
    Connection,
    Receive,
    Scope,
    Send,
    connection_of,
    headers_of,
    read_body,
    send_json,
)
from brain_coord.gateway.passage import Passage
from brain_coord.measure.speed import StreamClock
from brain_coord.routing.vocabulary import ResourceClass

log = structlog.get_logger("brain.cluster")

BODY_IDLE_S: Final = 10.0
JOB_CLAIMS: Final = frozenset({"from", "node", "epoch", "class", "job", "model", "route", "deadline_s"})
STOOD_STILL_S: Final = 1.0
"""A node whose answer came too late is not blamed if we stood still for longer, while it ran or just before."""

REMEMBERED: Final = 4096
"""Jobs for which the other coordinator has not said yet how the request ended."""


class Meter:
    """Times a stream that only passes through, by the same rules as if it were answered here."""

    def __init__(self, route: str, dispatched: float) -> None:
        self.answer = Answer(StreamClock(dispatched))
        self._passage: Passage | None = Passage(DIALECTS[route], self.answer, client_usage=True)

    def feed(self, data: bytes) -> None:
        """Bytes of the engine came."""
        if self._passage is not None:
            try:
                self._passage.feed(data, monotonic())
            except (EngineFault, TargetFault):
                self._passage = None  # nothing to learn from it; what it means is the other side's business

    def end(self) -> Answer | None:
        """What was seen of a stream that ended well."""
        if self._passage is None:
            return None
        try:
            self._passage.end(monotonic())
        except (EngineFault, TargetFault):
            return None
        return self.answer


@dataclass(slots=True)
class _Given:
    """A job that another coordinator gave and has not judged yet.

    Attributes:
        since: when it came, monotonic seconds.
        ended: whether the node brought it to its end.
        answer: what was seen of a stream that ended well.
    """

    target: NodeTarget
    node: Node
    since: float
    ended: bool = False
    answer: Answer | None = None


@dataclass(slots=True)
class HopServer:
    """Serves `/cluster/v1/…` to the coordinators that know the secret.

    Attributes:
        epoch_of: the epoch of a node's session here; `None` without one.
        body_bytes: largest body of a job.
        bodies: the memory for all of them, clients' own included.
        draining: no more jobs are taken.
        given: jobs that run here for others, by node and by coordinator.
        on_given: told when they change.
    """

    registry: Registry
    door: Doorkeeper
    epoch_of: Callable[[str], int | None]
    body_bytes: int
    bodies: BodyBudget
    on_given: Callable[[Node], None]
    draining: bool = False
    given: dict[str, Counter[str]] = field(default_factory=dict)
    running: dict[asyncio.Task[Any], str] = field(default_factory=dict)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _unjudged: OrderedDict[str, _Given] = field(default_factory=OrderedDict)
    _samples: ClassSamples = field(default_factory=ClassSamples)

    def __post_init__(self) -> None:
        self.idle.set()

    async def __call__(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of another coordinator."""
        connection = connection_of(scope)
        lease = self.bodies.lease(None)
        try:
            claims, body = await self._admit(path, scope, receive, lease)
            if path == JOB_PATH and claims.keys() >= JOB_CLAIMS and claims["route"] in DIALECTS:
                await self._watched(claims, body, connection, receive, send)
            elif path == ALIVE_PATH:
                await send_json(connection, 200, ALIVE, b"")
            elif path == EVENT_PATH:
                self._event(orjson.loads(body))
                await send_json(connection, 200, b"{}", b"")
            else:
                await _refuse(connection, 404, _away("another version of brain-coord"))
        except NotOurs as error:
            log.warning("hop refused", cause=str(error), address=(scope.get("client") or ("unknown",))[0])
            await _refuse(connection, 403, _away("not a coordinator of this cluster"))
        except ApiError as error:
            # We are there: to give the next of our nodes the same body would be in vain for each of them.
            cause = "too_large" if error.status == 413 else "busy"
            await _refuse(connection, error.status, TargetFault(cause, error.message, ran=False, blame=False))
        except ClientGone:
            return
        finally:
            lease.release()

    async def _admit(
        self, path: str, scope: Scope, receive: Receive, lease: BodyLease
    ) -> tuple[Mapping[str, Any], bytes]:
        headers = headers_of(scope)
        claims = self.door.admit(proof_of(headers), path, monotonic())
        body = await read_body(receive, headers, limit_bytes=self.body_bytes, idle_s=BODY_IDLE_S, lease=lease)
        if not same_body(claims, body):
            raise NotOurs("a proof for another body")
        return claims, body

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _watched(
        self, claims: Mapping[str, Any], body: bytes, connection: Connection, receive: Receive, send: Send
    ) -> None:
        """Run a job until it ends or the other coordinator hangs up, which cancels it."""
        job = asyncio.create_task(self._job(claims, body, connection, send))
        self.running[job] = claims["from"]
        self.idle.clear()

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            job.cancel()

        watcher = asyncio.create_task(gone())
        try:
            await asyncio.wait([job])
            if not job.cancelled():
                job.result()
        finally:
            job.cancel()
            watcher.cancel()
            del self.running[job]
            if not self.running:
                self.idle.set()

    async def _job(self, claims: Mapping[str, Any], body: bytes, connection: Connection, send: Send) -> None:
        node = self.registry.get(claims["node"])
        fault = self._unfit(node, claims)
        if fault is not None or node is None:
            await _refuse(connection, 409, fault or _no_slot("the node is not known here"))
            return
        target = NodeTarget(self.registry, node, claims["model"], ResourceClass(claims["class"]), self._samples)
        spec = JobSpec(claims["job"], claims["model"], claims["route"], body, claims["deadline_s"])
        given = self._remember(claims["job"], _Given(target, node, monotonic()))
        self._count(node, claims["from"], 1)
        try:
            try:
                exchange = await target.start(spec)
            except TargetFault as refused:
                await _refuse(connection, 409, refused)
                return
            try:
                await send({"type": "http.response.start", "status": 200, "headers": [_FRAMES]})
                end = await self._pass_on(exchange, claims["route"], given, connection, send)
            finally:
                await exchange.close()
        finally:
            self._count(node, claims["from"], -1)
        # Only now: whoever hears of the end may send the next job, and finds the slot free.
        await send({"type": "http.response.body", "body": end})

    def _unfit(self, node: Node | None, claims: Mapping[str, Any]) -> TargetFault | None:
        if self.draining:
            return _away("this coordinator is shutting down")
        if node is None or self.epoch_of(node.node_id) != claims["epoch"]:
            return _no_slot("the node's link has moved")
        if claims["model"] not in node.models or node.state not in ("ONLINE", "BUSY"):
            return _no_slot("the node does not take this job any more")
        return None

    async def _pass_on(
        self, exchange: Exchange, route: str, given: _Given, connection: Connection, send: Send
    ) -> bytes:
        """Send the answer on as it comes, and note what was seen of it; the frame that ends it."""
        meter: Meter | None = None
        try:
            head = await exchange.head()
            await _data(send, _head_frame(head))
            if head.status < 400 and head.content_type.startswith("text/event-stream"):
                meter = Meter(route, given.target.dispatched)

            def take(chunk: bytes) -> Waiting:
                if meter is not None:
                    meter.feed(chunk)
                if connection.flow.write_paused:
                    return _data(send, frame(DATA, chunk))
                connection.write(frame(DATA, chunk), more=True)
                return None

            await exchange.pass_on(take)
        except TargetFault as fault:
            return told(END, **_said(fault))
        given.ended = True
        if meter is not None:
            given.answer = meter.end()
        return told(END, cause=None)

    def _count(self, node: Node, replica: str, step: int) -> None:
        counts = self.given.setdefault(node.node_id, Counter())
        counts[replica] += step
        if not counts[replica]:
            del counts[replica]
        if not counts:
            del self.given[node.node_id]
        self.on_given(node)

    def cancel_from(self, replica: str) -> None:
        """A coordinator is gone: its jobs have nobody to answer to."""
        for job, name in tuple(self.running.items()):
            if name == replica:
                job.cancel()

    def cancel_all(self) -> None:
        """End every job; the coordinators that gave them find other nodes, or end their streams cleanly."""
        for job in tuple(self.running):
            job.cancel()

    # --- what others saw of our nodes ---------------------------------------------------------------------------------

    def _remember(self, job: str, given: _Given) -> _Given:
        self._unjudged[job] = given
        while len(self._unjudged) > REMEMBERED:
            self._unjudged.popitem(last=False)
        return given

    def _event(self, said: Mapping[str, Any]) -> None:
        try:
            if said["kind"] == "outcome":
                self._outcome(said)
                return
            node = self.registry.get(said["node"])
            if node is not None and node.session is not None:
                self.registry.record(node, said["event"], said["result"], said["model"], said["detail"])
        except KeyError as error:
            log.warning(
                "an outcome is not understood; the other coordinator may be of another version", cause=str(error)
            )

    def _outcome(self, said: Mapping[str, Any]) -> None:
        """How a request ended that another coordinator answered. Told twice, it counts once."""
        given = self._unjudged.pop(said["job"], None)
        if given is None or given.node.session is None:
            return
        if said["result"] == "timed_out" and (given.ended or self._stood_still(given.since)):
            return  # the other coordinator heard nothing of us, or of the way between; of the node it knows nothing
        answer = given.answer
        if said["empty"]:
            self.registry.empty(given.node)
        else:
            given.target.outcome(
                said["result"],
                first_output_ms=answer.clock.first_output_ms if answer is not None and said["streamed"] else None,
                total_ms=None,
                stream=None if answer is None else answer.sample,
            )

    def _stood_still(self, since: float) -> bool:
        """Whether our loop did, while a job ran or while it lay in the connection, as long as we are told of its end."""
        return self.registry.lessons.lag.stalled_s(since - EVENT_S, monotonic()) > STOOD_STILL_S


_FRAMES: Final = (b"content-type", FRAMES.encode())


def _no_slot(message: str) -> TargetFault:
    return TargetFault("no_free_slot", message, ran=False, blame=False)


def _away(message: str) -> TargetFault:
    return TargetFault("replica_away", message, ran=False, blame=False)


def _said(fault: TargetFault) -> dict[str, Any]:
    return {"cause": fault.cause, "message": str(fault), "ran": fault.ran, "blame": fault.blame}


def _head_frame(head: ReplyHead) -> bytes:
    return told(HEAD, status=head.status, content_type=head.content_type, retry_after=head.retry_after)


async def _data(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _refuse(connection: Connection, status: int, fault: TargetFault) -> None:
    await send_json(connection, status, orjson.dumps(_said(fault)), b"")
