"""Turn one finished request into the records that outlive it: receipt draft, `brain` object, outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from brain_coord.classes.target import Target
from brain_coord.gateway.answer import Outcome
from brain_coord.gateway.attempts import Result
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decision
from brain_coord.gateway.request import ApiRequest
from brain_coord.observe.finished import FinishedRequest, decision_id_of
from brain_coord.receipts.body import Price, ReceiptDraft, Timings, Tokens
from brain_coord.receipts.canonical import Written
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.record import class_record, node_record


class Journal(Protocol):
    """Where receipts go."""

    async def record(self, draft: ReceiptDraft) -> None:
        """Returns once the receipt is durable; raises `ApiError` if the operator chose to refuse unrecorded requests."""


@dataclass(slots=True)
class Record:
    """What is known of one request; filled in as it goes."""

    request: ApiRequest
    caller: Caller
    receipt_id: str
    wall_time: float
    began: float
    decision: Decision
    result: Result
    queued_ms: float = 0.0
    outcome: Outcome = "failed"
    error_code: str | None = None
    kept: ReceiptDraft | None = None
    """The draft that was recorded; `None` while there is no receipt."""
    decision_id: str = field(init=False)
    """Names the decision in logs and on pages."""

    def __post_init__(self) -> None:
        self.decision_id = decision_id_of(self.receipt_id)

    def finished(self, now: float) -> FinishedRequest:
        """The request for those who watch, once it is over."""
        return FinishedRequest(self.decision_id, self.kept or self.draft(now), self.kept is not None)

    def draft(self, now: float) -> ReceiptDraft:
        """The receipt as it stands at `now` (monotonic seconds)."""
        request, result, decision = self.request, self.result, self.decision
        answer, won = result.answer, self.outcome in ("completed", "incomplete", "client_cancelled", "slow_client")
        target = result.target if won else None
        generated = answer is not None and answer.clock.output_events and request.dialect.streams
        completion = answer.completion if answer is not None and generated else None
        clock = None if answer is None else answer.clock
        decode_ms = None
        if clock is not None and clock.first_output is not None and clock.last_output is not None:
            decode_ms = round((clock.last_output - clock.first_output) * 1000, 3)
        tokens = Tokens(
            prompt_reported=None if answer is None else answer.usage.prompt,
            completion_reported=None if answer is None else answer.usage.completion,
            completion_counted=None if completion is None else completion.tokens,
            counted_by=None if completion is None else _COUNTED_BY[completion.basis],
            prompt_billed=None if answer is None else answer.usage.prompt,
            completion_billed=None if completion is None else completion.tokens,
        )
        prospect = None if target is None else decision.prospects[target.resource_class]
        node_decision = decision.node_decision if prospect is None else prospect.node_decision
        return ReceiptDraft(
            receipt_id=self.receipt_id,
            request_id=request.request_id,
            time_s=self.wall_time,
            key_id=self.caller.key_id,
            plan=str(self.caller.plan),
            route=request.dialect.path,
            model=request.model,
            served_model=None if target is None else target.model,
            mode=str(decision.class_decision.mode),
            privacy=str(decision.class_decision.privacy),
            streamed=request.stream,
            request_sha256=request.sha256,
            response_sha256=answer.sha256 if answer is not None and answer.delivered_bytes else None,
            class_decision=_class_record(decision.class_decision),
            node_decision=None if node_decision is None else _node_record(node_decision),
            attempts=[attempt.to_dict() for attempt in result.attempts],
            resource_class=None if target is None else str(target.resource_class),
            node_id=None if target is None else target.node_id,
            outcome=self.outcome,
            error_code=self.error_code,
            tokens=tokens,
            timings=Timings(
                queued_ms=round(self.queued_ms, 3),
                first_output_ms=None if clock is None else clock.first_output_ms,
                decode_ms=decode_ms,
                decode_tok_s=None if answer is None else answer.tok_s,
                total_ms=round((now - self.began) * 1000, 3),
            ),
            price=None if target is None else _price(target, request.dialect.path, tokens),
            extra=_details(target),
        )

    def brain(self, now: float) -> dict[str, Any]:
        """The `brain` member of an answer."""
        result = self.result
        target, answer = result.target, result.answer
        return {
            "receipt": self.receipt_id,
            "request_id": self.request.request_id,
            "class": None if target is None else str(target.resource_class),
            "node": None if target is None else target.node_id,
            "target": None if target is None else target.name,
            "model": None if target is None else target.model,
            "mode": str(self.decision.class_decision.mode),
            "privacy": str(self.decision.class_decision.privacy),
            "route": self.decision.sentence(),
            "passed_over": [each.to_dict() for each in self.decision.passed_over()],
            "attempts": len(result.reached),
            "timings": {
                "measured_by": "coordinator",
                "queued_ms": round(self.queued_ms, 3),
                "first_output_ms": None if answer is None else answer.clock.first_output_ms,
                "decode_tok_s": None if answer is None else answer.tok_s,
                "total_ms": round((now - self.began) * 1000, 3),
            },
        }


def _class_record(decision: ClassDecision) -> Written:
    record: Written | None = decision.kept.get("record")
    if record is None:
        record = decision.kept["record"] = Written(class_record(decision))
    return record


def _node_record(decision: NodeDecision | AutoNodeDecision) -> Written:
    record: Written | None = decision.kept.get("record")
    if record is None:
        record = decision.kept["record"] = Written(node_record(decision))
    return record


_COUNTED_BY = {"usage": "text bound", "clipped": "text bound", "estimated": "estimate", "tokenizer": "tokenizer"}


def _details(target: Target | None) -> Mapping[str, Any]:
    """What a target that is `Detailed` has to say; asked for by name, as a protocol's own check takes far longer."""
    details = getattr(target, "details", None)
    return {} if details is None else details()


def _price(target: Target, path: str, tokens: Tokens) -> Price | None:
    prices = target.prices
    amount = prices.cost_usd(path, tokens.prompt_billed, tokens.completion_billed)
    if amount is None:
        return None
    return Price(
        amount_usd=amount,
        prompt_usd_per_1m=prices.prompt_usd_per_1m,
        completion_usd_per_1m=prices.completion_usd_per_1m,
    )
