"""How much memory the bodies of all requests may hold together. Small ones are free, so that they always get through.

One large body of a key may take all that is left. Several leave as much free as they hold, so that a key which fills the
memory, and whoever follows it, never locks the others out.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from brain_coord.gateway.errors import fault

SMALL_BYTES: Final = 64 * 1024
"""A body up to this size is not counted: what connections may cost bounds those."""


@dataclass(slots=True)
class BodyBudget:
    """The memory for the bodies of requests that are under way.

    Attributes:
        limit_bytes: all of it; changed by a reload.
        held_bytes: what is held now.
        by_key: the same of each key that holds any.
    """

    limit_bytes: int = 512 * 1024 * 1024
    held_bytes: int = 0
    by_key: Counter[str] = field(default_factory=Counter)

    def lease(self, key: str | None) -> "BodyLease":
        """The part of one request. Whoever takes it must release it, however the request ends.

        Args:
            key: whose request it is; `None` for one that another coordinator has admitted already.
        """
        return BodyLease(self, key)


@dataclass(slots=True)
class BodyLease:
    """What one request's body holds."""

    budget: BodyBudget
    key: str | None
    held_bytes: int = 0

    def check(self, size_bytes: int) -> None:
        """Whether a body of this size could be held; nothing is taken, as it may never come.

        Raises:
            ApiError: 503 with Retry-After.
        """
        if size_bytes <= max(SMALL_BYTES, self.held_bytes):
            return
        budget = self.budget
        left_bytes = budget.limit_bytes - (budget.held_bytes - self.held_bytes) - size_bytes
        others_bytes = 0 if self.key is None else budget.by_key[self.key] - self.held_bytes
        if left_bytes < 0:
            what = "large requests use up the memory that is set aside for them"
        elif others_bytes and others_bytes + size_bytes > left_bytes:
            what = "this key's large requests hold as much of the memory for them as is left to everybody else"
        else:
            return
        raise fault("bodies_full", f"{what}; try again shortly", retry_after_s=2)

    def grow(self, size_bytes: int) -> None:
        """The body has this size now.

        Raises:
            ApiError: 503 with Retry-After.
        """
        if size_bytes <= SMALL_BYTES:
            return
        self.check(size_bytes)
        self._hold(size_bytes)

    def release(self) -> None:
        """The request is over."""
        self._hold(0)

    def _hold(self, size_bytes: int) -> None:
        more_bytes, self.held_bytes = size_bytes - self.held_bytes, size_bytes
        budget, key = self.budget, self.key
        budget.held_bytes += more_bytes
        if key is not None:
            budget.by_key[key] += more_bytes
            if not budget.by_key[key]:
                del budget.by_key[key]
