"""Pure: what `--model auto` chooses.

For each sort of card the largest model that one such card serves with room for two requests of full length; every equal
card then runs a copy, because copies answer more people than one model spread over cards. Only where no model fits one
card are cards joined. Chosen are real models under open licences; others a person has to name.
"""

from collections.abc import Sequence
from typing import Final

from brain_node.contract.catalog import Catalog, Device, Model
from brain_node.plan.assign import Board
from brain_node.plan.machine import Card
from brain_node.plan.need import Wanted, wanted

OPEN_LICENSES: Final = frozenset({"apache-2.0", "mit"})

COMFORTABLE_CONTEXTS: Final = 2
"""Requests of full length that should fit at a time; a model that holds one only is a last choice."""


def candidates(catalog: Catalog, *, gated: bool) -> list[Model]:
    """The models that may be chosen without being named, in catalog order."""
    usable = (m for m in catalog if not m.mock and m.unusable is None)
    return [m for m in usable if m.license in OPEN_LICENSES and (gated or not m.gated)]


def choose_for_cards(models: Sequence[Model], cards: Sequence[Card], context: int | None) -> Wanted | None:
    """The model for cards that are all of one sort, or `None` when none fits."""
    ranked = sorted((m for m in models if m.device is not Device.CPU), key=lambda m: -m.params_b)
    poorest = min(cards, key=lambda card: card.free_bytes)
    on_one = [each for model in ranked if Board((poorest,)).fits(each := wanted(model, context), (poorest,))]
    comfortable = [each for each in on_one if _comfortable(each, poorest)]
    if comfortable or on_one:
        return (comfortable or on_one)[0]
    for size in range(2, len(cards) + 1):
        for model in ranked:
            each = wanted(model, context)
            group = sorted(cards, key=lambda card: -card.free_bytes)[:size]
            if each.divides(size) and Board(tuple(group)).fits(each, group):
                return each
    return None


def _comfortable(each: Wanted, card: Card) -> bool:
    shape = each.model.architecture
    if shape is None:
        return True
    more = shape.kv_bytes(each.context) * (COMFORTABLE_CONTEXTS - 1)
    return each.bytes_per_card(1) + more <= card.free_bytes
