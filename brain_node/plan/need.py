"""Pure: what one model needs of each card, and whether a card's generation can run it."""

import math
from dataclasses import dataclass
from typing import Final

from brain_node.contract.catalog import Model
from brain_node.contract.engine_flags import flag_value, without_flags
from brain_node.contract.footprint import BATCHED_TOKENS, CUDA_RUNTIME_BYTES
from brain_node.plan.machine import Card

ENGINE_MIN_CAPABILITY: Final = (7, 5)
"""The oldest generation that current engine builds hold kernels for (Turing)."""

BFLOAT16_CAPABILITY: Final = (8, 0)
"""The oldest generation that computes in bfloat16; older ones are told to use 16-bit floats."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model with the context it is to serve."""

    model: Model
    context: int
    """Tokens that must be servable."""
    most: int
    """Tokens to grow to where memory is left over."""

    def bytes_per_card(self, cards: int) -> int:
        """Bytes that each of `cards` cards must have free, the driver's share included."""
        shape = self.model.architecture
        if shape is None:
            return self.model.min_vram_bytes
        floor = shape.floor_bytes(self.context, cards)
        # An operator's file may ask for more than the formula gives; its figure is for its own context.
        if self.context < self.model.context:
            return floor
        return max(floor, math.ceil(self.model.min_vram_bytes / cards))

    def divides(self, cards: int) -> bool:
        """Whether the model can be shared by `cards` cards; one of unknown shape stays on one."""
        shape = self.model.architecture
        return cards == 1 if shape is None else shape.divides(cards)


def wanted(model: Model, context: int | None) -> Wanted:
    """The context a model is to serve: the operator's, else the catalog's, never above what the model can take."""
    limit = flag_value(model.args, "--max-model-len")
    most = min(model.max_context, int(limit)) if limit else model.max_context
    if context is not None:
        chosen = min(context, most)
        return Wanted(model, chosen, chosen)
    return Wanted(model, min(model.context, most), most)


def too_old(model: Model, card: Card) -> tuple[int, int] | None:
    """The generation that the model needs, when the card's is older; a card that does not tell is not refused."""
    needed = max(model.min_compute_capability or ENGINE_MIN_CAPABILITY, ENGINE_MIN_CAPABILITY)
    if flag_value(model.args, "--dtype") == "bfloat16":
        needed = max(needed, BFLOAT16_CAPABILITY)
    capability = card.compute_capability
    return needed if capability is not None and capability < needed else None


def args_for(model: Model, cards: tuple[Card, ...]) -> tuple[str, ...]:
    """The model's engine flags for these cards, without those that a placement decides itself."""
    args = without_flags(model.args, "--max-model-len", "--max-num-seqs")
    if flag_value(args, "--max-num-batched-tokens") is None:
        # The floor's activation peak is for this many; the engine's own default is larger on large cards.
        args = (*args, "--max-num-batched-tokens", str(BATCHED_TOKENS))
    oldest = min((card.compute_capability for card in cards if card.compute_capability), default=None)
    if oldest is not None and oldest < BFLOAT16_CAPABILITY and flag_value(args, "--dtype") is None:
        args = (*args, "--dtype", "half")
    return args


def engine_share(bytes_on_card: int) -> int:
    """What the engine itself may account for, of bytes set aside for its process."""
    return max(0, bytes_on_card - CUDA_RUNTIME_BYTES)
