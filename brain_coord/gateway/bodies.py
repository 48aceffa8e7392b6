"""How much memory the bodies of all requests may hold together. Small ones are free, so that they always get through."""

from dataclasses import dataclass
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
    """

    limit_bytes: int = 512 * 1024 * 1024
    held_bytes: int = 0

    def lease(self) -> "BodyLease":
        """The part of one request. Whoever takes it must release it, however the request ends."""
        return BodyLease(self)


@dataclass(slots=True)
class BodyLease:
    """What one request's body holds."""

    budget: BodyBudget
    held_bytes: int = 0

    def check(self, size_bytes: int) -> None:
        """Whether a body of this size could be held; nothing is taken, as it may never come.

        Raises:
            ApiError: 503 with Retry-After.
        """
        budget = self.budget
        if size_bytes > SMALL_BYTES and budget.held_bytes - self.held_bytes + size_bytes > budget.limit_bytes:
            raise fault(
                "bodies_full",
                "large requests use up the memory that is set aside for them; try again shortly",
                retry_after_s=2,
            )

    def grow(self, size_bytes: int) -> None:
        """The body has this size now.

        Raises:
            ApiError: 503 with Retry-After.
        """
        if size_bytes <= SMALL_BYTES:
            return
        self.check(size_bytes)
        self.budget.held_bytes += size_bytes - self.held_bytes
        self.held_bytes = size_bytes

    def release(self) -> None:
        """The request is over."""
        self.budget.held_bytes -= self.held_bytes
        self.held_bytes = 0
