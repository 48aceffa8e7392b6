"""The hot routes as plain ASGI: from socket to `Generation`, and every way a request can end before that."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import structlog

from brain_coord.gateway.auth import Caller, KeyBook, authenticate, bearer_of
from brain_coord.gateway.bodies import SMALL_BYTES, BodyBudget, BodyLease
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.dialects import Dialect
from brain_coord.gateway.errors import ApiError, draining, fault
from brain_coord.gateway.generation import GatewaySettings, Generation, Interruption
from brain_coord.gateway.http import (
    ClientGone,
    Connection,
    Receive,
    RequestHeaders,
    Scope,
    check_body,
    connection_of,
    read_body,
    send_error,
)
from brain_coord.gateway.ids import random_id
from brain_coord.gateway.journal import Journal
from brain_coord.gateway.limits import KeyMeters, PlanLimits, SharedMeters
from brain_coord.gateway.request import LARGE_BYTES, ApiRequest, parse_request
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.gateway.watch import Watch
from brain_coord.observe.finished import FinishedRequest, FinishedRequests
from brain_coord.observe.logs import DECISION_ID, REQUEST_ID
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
    finished: FinishedRequests = field(default_factory=FinishedRequests)
    """Every request that was decided, once it is over."""
    on_refused: list[Callable[[ApiError], None]] = field(default_factory=list)
    """Told of every request that ended before a decision: no key, no such model, not JSON."""
    watch: Watch | None = None
    tracer: Tracer | None = None

    _none_runs: asyncio.Event = field(default_factory=asyncio.Event)
    _logs: bool = field(init=False, default_factory=lambda: bool(log.is_enabled_for(logging.INFO)))
    """Whether there is a line for each request; to ask for that takes longer than all else that a request ends with."""

    async def serve(self, dialect: Dialect, scope: Scope, receive: Receive) -> None:
        """One request on a hot route; it is answered on its connection.

        Its key and limits are checked before anything of the body is read.
        """
        request_id = "req-" + random_id()
        REQUEST_ID.set(request_id)
        connection = connection_of(scope)
        connection.more_lines += dialect.id_lines % {b"id": request_id.encode()}
        headers = connection.headers
        trace = None if self.tracer is None else self.tracer.begin(dialect.path, headers, request_id)
        error_code: str | None = None
        finished: FinishedRequest | None = None
        try:
            if scope["method"] != "POST":
                raise fault("method_not_allowed", f"{dialect.path} takes POST", headers=[(b"allow", b"POST")])
            if self.draining:
                raise draining()
            secret = bearer_of(headers)
            caller = self.keys.known(secret) or await authenticate(self.keys, secret)
            began = monotonic()
            permit = self.meters.admit(caller, began)
            lease: BodyLease | None = None
            try:
                if self.shared is not None:
                    await self.shared.admit(caller, permit)
                connection.more_lines += permit.lines
                raw = connection.whole_body()
                if raw is None or len(raw) > SMALL_BYTES:
                    lease = self.bodies.lease(caller.key_id or "")
                    raw = await self._body(raw, receive, headers, lease)
                else:
                    check_body(headers, len(raw), self.settings.body_bytes)
                query = scope["query_string"]
                if len(raw) > LARGE_BYTES:  # other streams must not wait while a large body is hashed
                    request = await asyncio.to_thread(parse_request, request_id, dialect, raw, headers, query)
                else:
                    request = parse_request(request_id, dialect, raw, headers, query)
                generation = self._begins(request, caller, permit.limits, began, connection, trace)
                try:
                    await generation.run()
                finally:
                    finished = self._ended(generation)
                error_code = finished.draft.error_code
            finally:
                if lease is not None:
                    lease.release()
                permit.release()
        except Exception as error:
            error_code = await self._fails(error, dialect, request_id, connection)
        finally:
            if trace is not None:
                trace.end(error_code, finished)

    async def _body(self, whole: bytes | None, receive: Receive, headers: RequestHeaders, lease: BodyLease) -> bytes:
        """A body that is still coming, or is so large that it counts."""
        settings = self.settings
        if whole is None:
            came = await read_body(
                receive,
                headers,
                limit_bytes=settings.body_bytes,
                idle_s=settings.body_idle_s,
                least_bytes_per_s=settings.body_bytes_per_s,
                lease=lease,
            )
            if self.draining:
                raise draining()
            return came
        check_body(headers, len(whole), settings.body_bytes)
        lease.grow(len(whole))
        return whole

    async def _fails(self, error: Exception, dialect: Dialect, request_id: str, connection: Connection) -> str:
        """A request ended before it was decided, or by a fault of ours; the code of the error."""
        if isinstance(error, ClientGone):
            log.info("client left before the request was whole", request_id=request_id)
            return "client_cancelled"
        if isinstance(error, ApiError):
            for refused in self.on_refused:
                refused(error)
        else:
            log.error("request failed", request_id=request_id, exc_info=error)
            error = fault("internal", "a fault of the coordinator; its log has the request id")
        await send_error(connection, error, b"", dialect.error_body(error, request_id))
        return error.code

    def _begins(
        self,
        request: ApiRequest,
        caller: Caller,
        limits: PlanLimits,
        began: float,
        connection: Connection,
        trace: RequestTrace | None,
    ) -> Generation:
        generation = Generation(
            request,
            caller,
            connection,
            began=began,
            decider=self.decider,
            waiting=self.waiting,
            journal=self.journal,
            settings=self.settings,
            limits=limits,
            watch=self.watch,
        )
        record = generation.record
        record.result.trace = trace
        DECISION_ID.set(record.decision_id)
        self.running.add(generation)
        return generation

    def _ended(self, generation: Generation) -> FinishedRequest:
        self.running.discard(generation)
        if not self.running:
            self._none_runs.set()
        record = generation.record
        finished = record.finished(monotonic())
        self.finished.add(finished)
        if self._logs:
            log.info(
                "request",
                request_id=record.request.request_id,
                decision=record.decision_id,
                receipt=record.receipt_id if finished.recorded else None,
                model=record.request.model,
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
                await self._until_none_runs()
        except TimeoutError:
            await self.interrupt_all("draining")

    async def _until_none_runs(self) -> None:
        while self.running:
            self._none_runs.clear()
            await self._none_runs.wait()

    async def interrupt_all(self, why: Interruption) -> None:
        """End every running request early and wait until each has told its client."""
        for generation in tuple(self.running):
            generation.interrupt(why)
        try:
            async with asyncio.timeout(5.0):
                await self._until_none_runs()
        except TimeoutError:
            log.warning("requests did not end in time", count=len(self.running))
