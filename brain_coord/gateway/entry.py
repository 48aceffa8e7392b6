"""The hot routes as plain ASGI: from socket to `Generation`, and every way a request can end before that."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import structlog

from brain_coord.gateway.auth import Caller, KeyBook, authenticate
from brain_coord.gateway.bodies import BodyBudget, BodyLease
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.dialects import DIALECTS, Dialect
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.generation import GatewaySettings, Generation, Interruption
from brain_coord.gateway.http import ClientGone, Receive, Scope, Send, connection_of, headers_of, read_body, send_error
from brain_coord.gateway.ids import random_id
from brain_coord.gateway.journal import Journal
from brain_coord.gateway.limits import KeyMeters, SharedMeters, TaggedSend
from brain_coord.gateway.request import LARGE_BYTES, ApiRequest, parse_request
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.gateway.watch import Watch
from brain_coord.observe.finished import FinishedRequest
from brain_coord.observe.trace import RequestTrace, Tracer

log = structlog.get_logger("brain.request")


@dataclass(slots=True)
class Gateway:
    """Serves generations and knows those that run."""

    keys: KeyBook
    decider: Decider
    waiting: WaitingRoom
    journal: Journal
    settings: GatewaySettings
    meters: KeyMeters = field(default_factory=KeyMeters)
    bodies: BodyBudget = field(default_factory=BodyBudget)
    shared: SharedMeters | None = None
    """In a cluster: the limits of keys over all of its coordinators."""
    draining: bool = False
    leaving: bool = False
    """It will stop soon and wants no new clients, but still answers those that come."""
    running: set[Generation] = field(default_factory=set)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    on_finished: list[Callable[[FinishedRequest], None]] = field(default_factory=list)
    """Told of every request that was decided, once it is over."""
    on_refused: list[Callable[[ApiError], None]] = field(default_factory=list)
    """Told of every request that ended before a decision: no key, no such model, not JSON."""
    watch: Watch | None = None
    tracer: Tracer | None = None

    def __post_init__(self) -> None:
        self.idle.set()

    def serves(self, path: str) -> bool:
        """Whether a path is a hot route."""
        return path in DIALECTS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request on a hot route."""
        request_id = "req-" + random_id()
        structlog.contextvars.bind_contextvars(
            request_id=request_id
        )  # each request is a task, with a context of its own
        dialect = DIALECTS[scope["path"]]
        tagged = TaggedSend(send)
        trace = None if self.tracer is None else self.tracer.begin(dialect.path, headers_of(scope), request_id)
        error_code: str | None = None
        finished: FinishedRequest | None = None
        try:
            if scope["method"] != "POST":
                raise fault("method_not_allowed", f"{scope['path']} takes POST", headers=[(b"allow", b"POST")])
            if self.draining:
                raise fault("draining", "the coordinator is shutting down; try again shortly", retry_after_s=2)
            finished = await self._admit(dialect, request_id, scope, receive, tagged, trace)
            error_code = finished.draft.error_code
        except ApiError as error:
            error_code = error.code
            for refused in self.on_refused:
                refused(error)
            await _refuse(tagged, dialect, request_id, error)
        except ClientGone:
            error_code = "client_cancelled"
            log.info("client left before the request was whole", request_id=request_id)
        except Exception:
            error_code = "internal"
            log.exception("request failed", request_id=request_id)
            internal = fault("internal", "a fault of the coordinator; its log has the request id")
            await _refuse(tagged, dialect, request_id, internal)
        finally:
            if trace is not None:
                trace.end(error_code, finished)

    async def _admit(
        self,
        dialect: Dialect,
        request_id: str,
        scope: Scope,
        receive: Receive,
        send: TaggedSend,
        trace: RequestTrace | None,
    ) -> FinishedRequest:
        """Check the key and its limits before anything of the body is read."""
        headers = headers_of(scope)
        caller = await authenticate(self.keys, headers)
        began = monotonic()
        permit = self.meters.admit(caller, began)
        lease = self.bodies.lease()
        try:
            if self.shared is not None:
                await self.shared.admit(caller, permit, self.meters.plans[caller.plan])
            send.headers = permit.headers
            request = await self._read(dialect, request_id, headers, scope, receive, lease)
            return await self._generate(request, caller, began, scope, receive, send, trace)
        finally:
            lease.release()
            permit.release()

    async def _read(
        self,
        dialect: Dialect,
        request_id: str,
        headers: dict[str, str],
        scope: Scope,
        receive: Receive,
        lease: BodyLease,
    ) -> ApiRequest:
        settings = self.settings
        raw = await read_body(
            receive,
            headers,
            limit_bytes=settings.body_bytes,
            idle_s=settings.body_idle_s,
            least_bytes_per_s=settings.body_bytes_per_s,
            connection=connection_of(scope),
            lease=lease,
        )
        query = scope["query_string"].decode("latin-1")
        if len(raw) > LARGE_BYTES:  # other streams must not wait while a large body is hashed
            return await asyncio.to_thread(parse_request, request_id, dialect, raw, headers, query)
        return parse_request(request_id, dialect, raw, headers, query)

    async def _generate(
        self,
        request: ApiRequest,
        caller: Caller,
        began: float,
        scope: Scope,
        receive: Receive,
        send: Send,
        trace: RequestTrace | None,
    ) -> FinishedRequest:
        settings, request_id = self.settings, request.request_id
        generation = Generation(
            request,
            caller,
            scope,
            receive,
            send,
            began=began,
            decider=self.decider,
            waiting=self.waiting,
            journal=self.journal,
            settings=settings,
            share=self.meters.plans[caller.plan].places(self.waiting.limit),
            watch=self.watch,
        )
        generation.record.result.trace = trace
        structlog.contextvars.bind_contextvars(decision=generation.record.decision_id)
        self.running.add(generation)
        self.idle.clear()
        try:
            await generation.run()
        finally:
            self.running.discard(generation)
            if not self.running:
                self.idle.set()
            record = generation.record
            finished = record.finished(monotonic())
            for told in self.on_finished:
                told(finished)
            log.info(
                "request",
                request_id=request_id,
                decision=record.decision_id,
                receipt=record.receipt_id if finished.recorded else None,
                model=request.model,
                outcome=record.outcome,
                error=record.error_code,
                attempts=len(record.result.attempts),
            )
        return finished

    async def drain(self, limit_s: float) -> None:
        """Take no new requests, let running ones finish within the limit, end the rest with a clean error."""
        self.draining = True
        try:
            async with asyncio.timeout(limit_s):
                await self.idle.wait()
        except TimeoutError:
            await self.interrupt_all("draining")

    async def interrupt_all(self, why: Interruption) -> None:
        """End every running request early and wait until each has told its client."""
        for generation in tuple(self.running):
            generation.interrupt(why)
        try:
            async with asyncio.timeout(5.0):
                await self.idle.wait()
        except TimeoutError:
            log.warning("requests did not end in time", count=len(self.running))


async def _refuse(send: Send, dialect: Dialect, request_id: str, error: ApiError) -> None:
    names = [(name, request_id.encode()) for name in dialect.id_headers]
    await send_error(send, error, names, dialect.error_body(error, request_id))
