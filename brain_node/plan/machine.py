"""Pure: a machine as the planner sees it; only what may be used, in bytes."""

from dataclasses import dataclass
from typing import Final

from brain_node.plan.nameplate import nameplate_gb

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Card:
    """One card, or one MIG slice, that work may be put on."""

    uuid: str
    name: str
    index: int
    total_bytes: int
    free_bytes: int
    """What can be taken now, whoever holds the rest."""
    compute_capability: tuple[int, int] | None = None
    alone: bool = False
    """Cannot share a model with other cards: a MIG slice, or a chip with unified memory."""

    @property
    def label(self) -> str:
        """The card as people call it."""
        return f"GPU {self.index} ({self.name}, {nameplate_gb(self.total_bytes)} GB)"

    @property
    def sort(self) -> tuple[str, int]:
        """Cards with the same value are equal: the same model and the same memory."""
        return self.name, self.total_bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to put models on."""

    cards: tuple[Card, ...] = ()
    """Usable cards, in the order CUDA would number them."""
    ram_available_bytes: int = 0
    ram_total_bytes: int = 0
    cpu_count: int = 1

    @property
    def vram_mib(self) -> int | None:
        """Memory of all usable cards together, as a node reports it; `None` without a card."""
        return sum(card.total_bytes for card in self.cards) // MIB if self.cards else None
