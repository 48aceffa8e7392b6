"""Pure: which model goes on which cards. Works with floors; `share.py` then hands out what is left.

The model that needs most chooses first and takes the card with most room, so that two models on two unlike cards end up
on the cards that suit them. A card of its own beats sharing one; few cards beat many; equal cards beat unlike ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from brain_node.plan.machine import Card
from brain_node.plan.need import Wanted, engine_share, too_old


@dataclass(frozen=True, slots=True)
class Seat:
    """A model on the cards it got."""

    wanted: Wanted
    cards: tuple[Card, ...]
    replica: int = 0

    @property
    def needed_bytes(self) -> int:
        """Bytes on the smallest of its cards."""
        return self.wanted.bytes_per_card(len(self.cards))

    def needed_on(self, card: Card) -> int:
        """Bytes on `card`: the engine takes one fraction of every card, so a larger card has to give more."""
        smallest = min(each.total_bytes for each in self.cards)
        surplus = engine_share(self.needed_bytes) * (card.total_bytes - smallest) / smallest
        return self.needed_bytes + math.ceil(surplus)


@dataclass
class Board:
    """The cards with what is still free on them."""

    cards: tuple[Card, ...]
    seats: list[Seat] = field(default_factory=list)

    def room(self, card: Card) -> int:
        """Bytes of `card` that no seat needs."""
        return card.free_bytes - sum(seat.needed_on(card) for seat in self.tenants(card))

    def tenants(self, card: Card) -> list[Seat]:
        """The seats on `card`."""
        return [seat for seat in self.seats if card in seat.cards]

    def place(self, wanted: Wanted) -> Seat | None:
        """Seat a model where it fits best, or return `None`."""
        able = [card for card in self.cards if not too_old(wanted.model, card)]
        options = [cards for cards in self._groups(able) if wanted.divides(len(cards)) and self.fits(wanted, cards)]
        if not options:
            return None
        seat = Seat(wanted, min(options, key=self._preference))
        self.seats.append(seat)
        return seat

    def replicate(self, first: Seat, number: int) -> bool:
        """Seat a further copy on untouched cards that equal those of `first`; returns whether there were such cards."""
        sort = first.cards[0].sort
        if any(card.sort != sort for card in first.cards):
            return False
        untouched = [card for card in self.cards if card.sort == sort and not self.tenants(card)]
        cards = tuple(untouched[: len(first.cards)])
        if len(cards) < len(first.cards) or not self.fits(first.wanted, cards):
            return False
        self.seats.append(Seat(first.wanted, cards, number))
        return True

    def fits(self, wanted: Wanted, cards: Sequence[Card]) -> bool:
        """Whether these cards together can hold the model now."""
        if any(too_old(wanted.model, card) for card in cards) or (len(cards) > 1 and any(card.alone for card in cards)):
            return False
        seat = Seat(wanted, tuple(cards))
        return all(self.room(card) >= seat.needed_on(card) for card in cards)

    def _groups(self, cards: Sequence[Card]) -> list[tuple[Card, ...]]:
        """Card groups worth trying: each card alone; for each size, the roomiest of each sort and of all sorts."""
        joinable = sorted(
            (card for card in cards if not card.alone),
            key=lambda card: (bool(self.tenants(card)), -self.room(card), card.index, card.uuid),
        )
        sorts = dict.fromkeys(card.sort for card in joinable)
        pools = [joinable, *([card for card in joinable if card.sort == sort] for sort in sorts)]
        joined = [tuple(pool[:size]) for pool in pools for size in range(2, len(pool) + 1)]
        return [*((card,) for card in cards), *joined]

    def _preference(self, cards: tuple[Card, ...]) -> tuple[bool, int, bool, int, tuple[int, ...], tuple[str, ...]]:
        shared = any(self.tenants(card) for card in cards)
        unlike = len({card.sort for card in cards}) > 1
        room = min(self.room(card) for card in cards)
        return shared, len(cards), unlike, -room, tuple(c.index for c in cards), tuple(c.uuid for c in cards)


def assign(models: Sequence[Wanted], cards: Sequence[Card], *, replicas: bool) -> tuple[list[Seat], list[Wanted]]:
    """Put models on cards.

    Returns:
        The seats, in the models' order with replicas behind, and the models that found none.
    """
    board = Board(tuple(cards))
    first_seats: dict[str, Seat] = {}
    left_out: list[Wanted] = []
    by_need = sorted(range(len(models)), key=lambda place: (-models[place].bytes_per_card(1), place))
    for place in by_need:
        seat = board.place(models[place])
        if seat is None:
            left_out.append(models[place])
        else:
            first_seats[models[place].model.id] = seat
    in_order = [first_seats[each.model.id] for each in models if each.model.id in first_seats]
    number = 1
    while replicas and _one_more_each(board, in_order, number):
        number += 1
    return in_order + board.seats[len(in_order) :], left_out


def _one_more_each(board: Board, seats: Sequence[Seat], number: int) -> bool:
    added = [board.replicate(seat, number) for seat in seats]
    return any(added)
