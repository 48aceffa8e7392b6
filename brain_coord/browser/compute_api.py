"""`POST /v1/compute/matmul` and the jobs behind it: waiting, or asynchronous with progress as server-sent events."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from brain_coord.browser.compute_receipt import Asked, draft_of
from brain_coord.browser.compute_request import MatmulRequest, product_of, read_request
from brain_coord.browser.jobs import ComputeJob, JobBook, able
from brain_coord.browser.tab import MATMUL
from brain_coord.classes.backend import Query
from brain_coord.classes.browser import COMPUTE_PATH
from brain_coord.classes.samples import ClassSamples
from brain_coord.gateway import sse
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.entry import Gateway
from brain_coord.gateway.errors import ApiError, draining, fault
from brain_coord.gateway.http import headers_of, pairs_of, read_body
from brain_coord.gateway.ids import receipt_id_at
from brain_coord.gateway.limits import Permit
from brain_coord.gateway.openapi import json_body
from brain_coord.gateway.routes.context import KnownCaller
from brain_coord.observe.finished import FinishedRequest, decision_id_of
from brain_coord.observe.logs import REQUEST_ID
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.inputs import ClassRequest, NodeRequest
from brain_coord.routing.modes import resolve_mode

log = structlog.get_logger("brain.browser")

GONE_CHECK_S = 0.25
BODY_AT = f"#/paths/{COMPUTE_PATH.replace('/', '~1')}/post/requestBody/content/application~1json/schema"
"""Where the schema of the body stands in the API's description; its definitions stand below it."""


@dataclass(slots=True)
class ComputeApi:
    """The routes over one coordinator."""

    gateway: Gateway
    book: JobBook
    samples: ClassSamples
    """What the class knows of products."""

    def router(self) -> APIRouter:
        """`/v1/compute/…`."""
        router = APIRouter(tags=["compute"])
        router.add_api_route(
            COMPUTE_PATH,
            self.matmul,
            methods=["POST"],
            responses={202: {"description": 'With `"wait": false`: the job goes on.'}},
            openapi_extra=json_body(MatmulRequest.model_json_schema(ref_template=BODY_AT + "/$defs/{model}")),
        )
        router.add_api_route("/v1/compute/jobs/{job_id}", self.job, methods=["GET"])
        router.add_api_route("/v1/compute/jobs/{job_id}", self.cancel, methods=["DELETE"])
        router.add_api_route(
            "/v1/compute/jobs/{job_id}/events",
            self.events,
            methods=["GET"],
            response_class=StreamingResponse,
            responses={200: {"content": {"text/event-stream": {}}}},
        )
        router.add_api_route(
            "/v1/compute/jobs/{job_id}/result",
            self.result,
            methods=["GET"],
            response_class=Response,
            responses={200: {"content": {"application/octet-stream": {}}}},
        )
        return router

    async def matmul(self, request: Request, caller: KnownCaller) -> Response:
        """Multiply two matrices of unsigned 32-bit numbers mod 2^32 over browser tabs; every unit is checked.

        The body is JSON: `rows`, `inner`, `columns`, and either `seed` or `a` and `b` in base64. With `"wait": false` the
        answer is 202 and the job goes on; its progress is at `/v1/compute/jobs/ID/events`.
        """
        gateway, bounds = self.gateway, self.gateway.settings
        if gateway.draining:
            raise draining()
        permit = gateway.meters.admit(caller, monotonic())
        try:
            raw = await read_body(
                request.receive, headers_of(request.scope), limit_bytes=bounds.body_bytes, idle_s=bounds.body_idle_s
            )
            asked = await asyncio.to_thread(read_request, raw)
            product = await asyncio.to_thread(product_of, asked)
            decision = self._decide(asked, caller)
            first = self.book.dispatcher.decide()
            if self.book.full:
                raise fault("queue_full", "as many compute jobs run as may; try again shortly", retry_after_s=5)
            tabs = able(self.book.dispatcher.tabs.online, monotonic())
            job = ComputeJob(product, tabs, key_id=caller.key_id, redundancy=asked.redundancy)
            now_s = time.time()
            told = Asked(
                request_id=REQUEST_ID.get(),
                receipt_id=receipt_id_at(now_s),
                time_s=now_s,
                caller=caller,
                sha256=hashlib.sha256(raw).hexdigest(),
                decision=decision,
                first=first,
            )
        except BaseException:
            permit.release()
            raise
        task = self.book.start(job, lambda ended: self._ended(told, ended, permit))
        if not asked.wait:
            return JSONResponse(
                job.view(), 202, headers={**_headers(told, permit), "location": f"/v1/compute/jobs/{job.job_id}"}
            )
        await self._wait(request, job, task)
        return self._answer(asked, told, job, permit)

    def _decide(self, asked: MatmulRequest, caller: Caller) -> ClassDecision:
        decider = self.gateway.decider
        wish = ClassRequest(mode=asked.mode, privacy=asked.privacy, plan=caller.plan, carries_plaintext=False)
        query = Query(MATMUL, COMPUTE_PATH, NodeRequest(), resolve_mode(wish, decider.community_first))
        states = [backend.prospect(query).state for backend in decider.backends]
        decision = decide_class(wish, states, decider.community_first)
        if decision.selected is None:
            sentence = self.book.dispatcher.shortage()
            brain = {"decision": {"class": decision.to_dict()}}
            raise fault("no_capacity", f"BROWSER_NETWORK: {sentence}", retry_after_s=10, brain=brain)
        return decision

    async def _ended(self, told: Asked, job: ComputeJob, permit: Permit) -> None:
        permit.release()
        job.receipt_id = told.receipt_id
        draft = draft_of(told, job)
        if job.outcome == "completed" and job.ended is not None:
            self.samples.completed((job.ended - job.began) * 1000)
        elif job.outcome == "failed":
            self.samples.failed()
        recorded = False
        try:
            await self.gateway.journal.record(job.job_id, lambda: draft)
            recorded = True
        except ApiError:
            log.exception("receipt lost", job=job.job_id)
            job.receipt_id = None
        self.gateway.finished.add(FinishedRequest(decision_id_of(told.receipt_id), draft, recorded))

    async def _wait(self, request: Request, job: ComputeJob, task: asyncio.Task[None]) -> None:
        while not task.done():
            await asyncio.wait({task}, timeout=GONE_CHECK_S)
            if not task.done() and await request.is_disconnected():
                self.book.cancel(job)

    def _answer(self, asked: MatmulRequest, told: Asked, job: ComputeJob, permit: Permit) -> Response:
        if job.status != "completed":
            code = (job.reason or "").partition(":")[0]
            brain = {"job": job.view(), "receipt": job.receipt_id}
            told_code = code if code in ("no_capacity", "draining") else "target_failed"
            raise fault(told_code, job.reason or "failed", brain=brain)
        body: dict[str, Any] = {**job.view(), "verification": draft_of(told, job).extra["verification"]}
        if asked.result == "base64":
            body["result"] = base64.b64encode(job.result.astype("<u4").tobytes()).decode()
        return JSONResponse(body, headers=_headers(told, permit))

    def _job(self, job_id: str, caller: Caller) -> ComputeJob:
        job = self.book.find(job_id, caller.key_id)
        if job is None:
            raise fault("not_found", f"this key has no compute job {job_id}; finished ones are kept for ten minutes")
        return job

    async def job(self, job_id: str, caller: KnownCaller) -> dict[str, Any]:
        """How far a job is."""
        return self._job(job_id, caller).view()

    async def cancel(self, job_id: str, caller: KnownCaller) -> dict[str, Any]:
        """Give a job up."""
        job = self._job(job_id, caller)
        return {"id": job.job_id, "cancelled": self.book.cancel(job)}

    async def events(self, job_id: str, caller: KnownCaller) -> StreamingResponse:
        """The job as server-sent events: one `progress` whenever something happened, at last `end`."""
        job = self._job(job_id, caller)

        async def stream() -> AsyncIterator[bytes]:
            version = -1
            while True:
                version = await job.after(version) if version >= 0 else job.version
                over = job.status != "running"
                yield sse.event(orjson.dumps(job.view()), "end" if over else "progress")
                if over:
                    return

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    async def result(self, job_id: str, caller: KnownCaller) -> Response:
        """The numbers of a completed job: unsigned 32 bits, little endian, row by row."""
        job = self._job(job_id, caller)
        if job.status != "completed":
            raise fault("not_found", f"the job is {job.status} and has no result", param="job_id")
        data = await asyncio.to_thread(lambda: job.result.astype("<u4").tobytes())
        return Response(data, media_type="application/octet-stream", headers={"x-brain-sha256": job.sha256 or ""})


def _headers(told: Asked, permit: Permit) -> dict[str, str]:
    meter = {name.decode(): value.decode() for name, value in pairs_of(permit.lines)}
    return {**meter, "x-brain-receipt": told.receipt_id}
