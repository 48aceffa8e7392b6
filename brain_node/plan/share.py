"""Pure: what a seated model may take: its share of each card, the context that fits, requests at a time."""

import math
from typing import Final

from brain_node.contract.catalog import Model
from brain_node.contract.engine_flags import flag_value
from brain_node.plan.assign import Board, Seat
from brain_node.plan.need import args_for, engine_share
from brain_node.plan.records import Placement

MAX_FRACTION: Final = 0.95
"""Most of a card that an engine takes, where its floor does not need more: room for what other programs do meanwhile."""

FULL_CONTEXTS: Final = 4
"""The context grows beyond the catalog's only while the KV cache holds this many requests of full length."""

CONTEXT_STEP: Final = 1024

TYPICAL_TOKENS: Final = 2048
"""Tokens of a usual request; there are slots for as many of these as the KV cache holds."""

MAX_SLOTS_CUDA: Final = 32
UNKNOWN_SHAPE_SLOTS: Final = 8


def placement_of(seat: Seat, board: Board, slots: int | None) -> Placement:
    """Hand out to a seat its floor and an even part of what its cards have left."""
    budgets = [seat.needed_on(card) + max(0, board.room(card)) // len(board.tenants(card)) for card in seat.cards]
    fraction = min(
        max(
            min(MAX_FRACTION, engine_share(budget) / card.total_bytes),
            engine_share(seat.needed_on(card)) / card.total_bytes,
        )
        for card, budget in zip(seat.cards, budgets, strict=True)
    )
    # Rounded down: an engine asked for a hair more than is free does not start.
    fraction = math.floor(fraction * 10_000) / 10_000
    tokens = _kv_tokens(seat, fraction)
    model = seat.wanted.model
    context = _grown_context(seat, tokens)
    return Placement(
        model=model,
        device="cuda",
        max_model_len=context,
        slots=_slots(model, context, tokens, slots),
        args=args_for(model, seat.cards),
        gpu_uuids=tuple(card.uuid for card in seat.cards),
        gpu_indices=tuple(card.index for card in seat.cards),
        tensor_parallel=len(seat.cards),
        gpu_memory_utilization=fraction,
        kv_cache_tokens=tokens,
        needed_bytes=seat.needed_bytes,
        budget_bytes=min(budgets),
        replica=seat.replica,
    )


def _kv_tokens(seat: Seat, fraction: float) -> int | None:
    shape = seat.wanted.model.architecture
    if shape is None:
        return None
    cards = len(seat.cards)
    engine_bytes = int(fraction * min(card.total_bytes for card in seat.cards))
    kv_bytes = engine_bytes - math.ceil(shape.weights_bytes / cards) - shape.activation_bytes
    # Rounding the fraction may cost a few tokens of a context that was found to fit.
    return max(seat.wanted.context, shape.kv_tokens(kv_bytes * shape.kv_shards(cards)))


def _grown_context(seat: Seat, tokens: int | None) -> int:
    wanted = seat.wanted
    if tokens is None:
        return wanted.context
    grown = tokens // FULL_CONTEXTS // CONTEXT_STEP * CONTEXT_STEP
    return max(wanted.context, min(grown, wanted.most))


def _slots(model: Model, context: int, tokens: int | None, asked: int | None) -> int:
    limit = flag_value(model.args, "--max-num-seqs")
    if asked is not None:
        chosen = asked
    elif tokens is None:
        chosen = UNKNOWN_SHAPE_SLOTS
    else:
        chosen = min(MAX_SLOTS_CUDA, tokens // min(context, TYPICAL_TOKENS))
    return max(1, min(chosen, int(limit)) if limit else chosen)
