"""One request as it ended: what metrics, pages and logs are views of."""

from typing import NamedTuple

from brain_coord.receipts.body import ReceiptDraft


class FinishedRequest(NamedTuple):
    """A request whose decision was made, whatever came of it. Holds nothing of its content.

    Attributes:
        decision_id: names the decision in logs and on pages; its digits are those of the receipt's id.
        draft: decisions, attempts, counts and times, as the receipt has them.
        recorded: whether a receipt was written; requests that reached no target leave none.
    """

    decision_id: str
    draft: ReceiptDraft
    recorded: bool


def decision_id_of(receipt_id: str) -> str:
    """The id of the decision behind a receipt: `r-5f…` stands for `d-5f…`."""
    return "d-" + receipt_id.removeprefix("r-")
