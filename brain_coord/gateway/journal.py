"""Turn one finished request into the records that outlive it: receipt draft, `brain` object, outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from brain_coord.classes.target import Target
from brain_coord.gateway.answer import Outcome
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decision
from brain_coord.gateway.request import ApiRequest
from brain_coord.gateway.result import Result
from brain_coord.observe.finished import FinishedRequest, decision_id_of
from brain_coord.receipts.body import Price, ReceiptDraft, Timings, Tokens
from brain_coord.receipts.canonical import Written
from brain_coord.routing.record import class_record, node_record

ANSWERED: Final = frozenset({"completed", "incomplete", "client_cancelled", "slow_client"})
"""Outcomes in which a target answered, at least in part."""
NO_TOKENS: Final = Tokens()
TEMPLATE_TOKENS: Final = 1024
"""What a chat template may add to a prompt of its own: names of roles, how tools are called."""

NO_TEXT: Final = (
    b'"image"',
    b'"image_url"',
    b'"input_image"',
    b'"input_audio"',
    b'"audio_url"',
    b'"video_url"',
    b'"document"',
    b'"file"',
    b'"input_file"',
)
"""Types of a request's parts that are no text, and of which a short address may stand for many tokens."""


class Journal(Protocol):
    """Where receipts go."""

    async def record(self, request_id: str, draft: Callable[[], ReceiptDraft]) -> None:
        """Returns once the receipt is durable; raises `ApiError` if the operator chose to refuse unrecorded requests.

        Args:
            request_id: of the request.
            draft: makes the receipt; called once at most, on the event loop, when the journal is about to write.
        """


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
        answer = result.answer
        target = result.target if self.outcome in ANSWERED else None
        counted = counted_by = response_sha256 = decode_ms = None
        if answer is None:
            tokens, first_output_ms, decode_tok_s = NO_TOKENS, None, None
        else:
            usage = answer.usage
            clock, completion, decode_tok_s = answer.sample
            if clock.output_events and request.dialect.streams:
                counted, basis = completion
                counted_by = _COUNTED_BY[basis]
            tokens = Tokens(
                prompt_reported=usage.prompt,
                completion_reported=usage.completion,
                completion_counted=counted,
                counted_by=counted_by,
                prompt_billed=billed_prompt(usage.prompt, request.body, result.target),
                completion_billed=counted,
            )
            if answer.delivered_bytes:
                response_sha256 = answer.sha256
            first_output_ms = clock.first_output_ms
            first_output, last_output = clock.first_output, clock.last_output
            if first_output is not None and last_output is not None:
                decode_ms = round((last_output - first_output) * 1000, 3) or 0
        if target is None:
            node_decision = decision.node_decision
            served_model = resource_class = node_id = price = details = None
        else:
            # What answered in place of a node was asked because of that node, so its decision is told.
            node_decision = decision.prospects[target.resource_class].node_decision or decision.node_decision
            served_model, resource_class, node_id = target.model, str(target.resource_class), target.node_id
            price = _price(target, request.dialect.path, tokens)
            details = getattr(target, "details", None)  # a `Detailed`: a protocol's own check takes far longer
        judged = decision.class_decision
        queued_ms = round(self.queued_ms, 3) or 0  # a receipt does not take 0.0 as it is; so with `decode_ms`
        return ReceiptDraft(
            receipt_id=self.receipt_id,
            request_id=request.request_id,
            time_s=self.wall_time,
            key_id=self.caller.key_id,
            plan=str(self.caller.plan),
            route=request.dialect.path,
            model=request.model,
            served_model=served_model,
            mode=str(judged.mode),
            privacy=str(judged.privacy),
            streamed=request.stream,
            request_sha256=request.sha256,
            response_sha256=response_sha256,
            class_decision=judged.kept.get("record") or _keep(judged.kept, class_record(judged)),
            node_decision=None
            if node_decision is None
            else node_decision.kept.get("record") or _keep(node_decision.kept, node_record(node_decision)),
            attempts=result.attempts,
            resource_class=resource_class,
            node_id=node_id,
            outcome=self.outcome,
            error_code=self.error_code,
            tokens=tokens,
            timings=Timings(
                queued_ms=queued_ms,
                first_output_ms=first_output_ms,
                decode_ms=decode_ms,
                decode_tok_s=decode_tok_s,
                total_ms=round((now - self.began) * 1000, 3),
            ),
            price=price,
            extra={} if details is None else details(),
        )

    def brain(self, now: float) -> dict[str, Any]:
        """The `brain` member of an answer: what is known of it is what its receipt says."""
        result, draft, decision = self.result, self.kept or self.draft(now), self.decision
        target, timings, passed_over = result.target, draft.timings, decision.passed_over()
        return {
            "receipt": self.receipt_id,
            "request_id": draft.request_id,
            "class": draft.resource_class,
            "node": draft.node_id,
            "target": None if target is None else target.name,
            "model": draft.served_model,
            "mode": draft.mode,
            "privacy": draft.privacy,
            "route": decision.sentence(passed_over) + self._tried(),
            "passed_over": [each.to_dict() for each in passed_over],
            "attempts": len(result.reached),
            "timings": {
                "measured_by": "coordinator",
                "queued_ms": round(self.queued_ms, 3),
                "first_output_ms": timings.first_output_ms,
                "decode_tok_s": timings.decode_tok_s,
                "total_ms": round((now - self.began) * 1000, 3),
            },
        }

    def _tried(self) -> str:
        """Who was asked before whoever answered, and what came of it: the rest of the sentence, mostly nothing."""
        attempts = self.result.attempts
        if len(attempts) < 2:
            return ""
        return f" [tried before: {'; '.join(f'{each.target} {each.cause}' for each in attempts if each.cause)}]"


def _keep(kept: dict[str, Any], record: Mapping[str, Any]) -> Written:
    """The record of a decision, kept with it for the other requests that it decides."""
    written = kept["record"] = Written(record)
    return written


def billed_prompt(reported: int | None, body: bytes, target: Target | None) -> int | None:
    """A prompt's tokens; of a node's no more than the request can hold, whose text has a byte a token at least."""
    most = len(body) + TEMPLATE_TOKENS
    if reported is None or reported <= most or target is None or target.node_id is None:
        return reported
    return reported if any(kind in body for kind in NO_TEXT) else most


_COUNTED_BY = {"usage": "text bound", "clipped": "text bound", "estimated": "estimate", "tokenizer": "tokenizer"}


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
