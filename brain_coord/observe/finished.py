"""Requests as they ended: what metrics, pages and logs are views of."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from brain_coord.receipts.body import ReceiptDraft

AT_ONCE: Final = 64
"""Requests that are told of in one go: code that runs once a request finds nothing of itself in the processor's caches, and
costs several times what it does in a row."""


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


class FinishedRequests:
    """Requests that are over, on their way to those who count and show them.

    Attributes:
        watchers: told of all requests, some at a time.
    """

    __slots__ = ("_untold", "watchers")

    def __init__(self) -> None:
        self.watchers: list[Callable[[Sequence[FinishedRequest]], None]] = []
        self._untold: list[FinishedRequest] = []

    def add(self, request: FinishedRequest) -> None:
        """One more is over."""
        untold = self._untold
        untold.append(request)
        if len(untold) >= AT_ONCE:
            self.tell()

    def tell(self) -> None:
        """Tell of those that were not told of yet; to be called before anything is read from a watcher."""
        untold, self._untold = self._untold, []
        for watcher in self.watchers:
            watcher(untold)


def decision_id_of(receipt_id: str) -> str:
    """The id of the decision behind a receipt: `r-5f…` stands for `d-5f…`."""
    return "d-" + receipt_id.removeprefix("r-")
