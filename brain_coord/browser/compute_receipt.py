"""The receipt of a product: the class decision, every unit with its tab, and how the result was verified."""

from dataclasses import dataclass
from time import monotonic
from typing import Any

from brain_coord.browser.jobs import ComputeJob
from brain_coord.browser.product_check import METHOD
from brain_coord.browser.tab import MATMUL
from brain_coord.classes.browser import COMPUTE_PATH
from brain_coord.gateway.auth import Caller
from brain_coord.receipts.body import Attempt, ReceiptDraft, Timings
from brain_coord.receipts.canonical import Written
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.record import routing_record
from brain_coord.routing.vocabulary import ResourceClass


@dataclass(frozen=True, slots=True)
class Asked:
    """The request behind a job, and how it was routed."""

    request_id: str
    receipt_id: str
    time_s: float
    caller: Caller
    sha256: str
    decision: ClassDecision
    first: NodeDecision
    """The node router's decision for the first unit; the others follow by the same rules as tabs become free."""


def draft_of(asked: Asked, job: ComputeJob) -> ReceiptDraft:
    """The receipt as the job ended."""
    routing = routing_record(Routing(asked.decision, asked.first))
    completed = job.outcome == "completed"
    return ReceiptDraft(
        receipt_id=asked.receipt_id,
        request_id=asked.request_id,
        time_s=asked.time_s,
        key_id=asked.caller.key_id,
        plan=str(asked.caller.plan),
        route=COMPUTE_PATH,
        model=MATMUL,
        served_model=MATMUL if completed else None,
        mode=str(asked.decision.mode),
        privacy=str(asked.decision.privacy),
        streamed=False,
        request_sha256=asked.sha256,
        response_sha256=job.sha256,
        class_decision=Written(routing["class"]),
        node_decision=Written(routing["node"]),
        attempts=[_attempt(attempt) for attempt in job.attempts],
        resource_class=str(ResourceClass.BROWSER_NETWORK) if completed else None,
        node_id=None,
        outcome={"cancelled": "client_cancelled"}.get(job.outcome, job.outcome),
        error_code=None if completed else (job.reason or "failed").partition(":")[0],
        timings=Timings(total_ms=round(((job.ended or monotonic()) - job.began) * 1000, 3)),
        extra=_extra(job, completed=completed),
    )


def _extra(job: ComputeJob, *, completed: bool) -> dict[str, Any]:
    product = job.product
    return {
        "verified": completed,
        "verification": METHOD.to_dict(),
        "compute": {
            "job": job.job_id,
            "kind": MATMUL,
            "rows": product.rows,
            "inner": product.inner,
            "columns": product.columns,
            "redundancy": job.redundancy,
            "operations": 2 * product.rows * product.inner * product.columns,
            "result_sha256": job.sha256,
            "units": [
                {
                    "unit": unit.number,
                    "row": unit.block.row,
                    "rows": unit.block.rows,
                    "column": unit.block.column,
                    "columns": unit.block.columns,
                    "tabs": sorted(unit.answers),
                }
                for unit in job.units
            ],
        },
    }


def _attempt(attempt: dict[str, Any]) -> Attempt:
    cause = attempt["cause"]
    return Attempt(
        resource_class=str(ResourceClass.BROWSER_NETWORK),
        target=attempt["tab"],
        model=MATMUL,
        started_ms=attempt["started_ms"],
        ended_ms=attempt.get("ended_ms", attempt["started_ms"]),
        cause=cause,
        status=200 if cause is None else None,
        ran=True,
        blamed=cause in ("wrong_result", "too_fast", "timeout", "tab_lost"),
        unit=attempt["unit"],
    )
