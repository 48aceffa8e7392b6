"""The latest finished requests: a bounded ring in memory, without anything of their content."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from brain_coord.observe.finished import FinishedRequest
from brain_coord.receipts.body import ReceiptDraft, timestamp

KEPT: Final = 500


@dataclass(slots=True)
class RecentRequests:
    """Finished requests by decision id, the newest last."""

    kept: int = KEPT
    _by_id: OrderedDict[str, FinishedRequest] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, requests: Sequence[FinishedRequest]) -> None:
        """Keep some; the oldest beyond the bound are forgotten."""
        kept = self._by_id
        kept.update((each.decision_id, each) for each in requests)
        while len(kept) > self.kept:
            kept.popitem(last=False)

    def get(self, decision_id: str) -> FinishedRequest | None:
        """The request with this decision, while it is remembered."""
        return self._by_id.get(decision_id)

    def newest(self, count: int) -> Iterator[FinishedRequest]:
        """The latest, newest first."""
        return islice(reversed(self._by_id.values()), count)


def tabs_of(draft: ReceiptDraft) -> set[str]:
    """The browser tabs that had a part in a request, among the names of everybody who had one."""
    stages = (draft.extra.get("browser") or {}).get("stages", ())
    return {attempt.target for attempt in draft.attempts} | {tab for stage in stages for tab in stage["tabs"]}


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One request in the list of recent decisions."""

    decision_id: str
    receipt_id: str | None
    time: str
    model: str
    mode: str
    privacy: str
    resource_class: str | None
    node_id: str | None
    outcome: str
    error: str | None
    attempts: int
    first_output_ms: float | None
    decode_tok_s: float | None
    total_ms: float | None
    sentence: str | None
    """Why nobody could take it; `None` when somebody did."""


def decision_row(finished: FinishedRequest) -> DecisionRow:
    """The row of one request."""
    draft = finished.draft
    return DecisionRow(
        decision_id=finished.decision_id,
        receipt_id=draft.receipt_id if finished.recorded else None,
        time=timestamp(draft.time_s),
        model=draft.model,
        mode=draft.mode,
        privacy=draft.privacy,
        resource_class=draft.resource_class,
        node_id=draft.node_id,
        outcome=draft.outcome,
        error=draft.error_code,
        attempts=len(draft.attempts),
        first_output_ms=draft.timings.first_output_ms,
        decode_tok_s=draft.timings.decode_tok_s,
        total_ms=draft.timings.total_ms,
        sentence=None if draft.attempts else _reason(draft.node_decision, draft.class_decision),
    )


def _reason(node: Any, class_record: Any) -> str | None:
    reason = None
    if node is not None:
        reason = node.get("reason") or (node.get("decision") or {}).get("reason")
    return reason or ((class_record or {}).get("decision") or {}).get("reason")
