"""Which upstream of a class takes a request: pure, by the weights that the class router uses for the same mode."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brain_coord.classes.backend import Query
from brain_coord.classes.upstream import Offer
from brain_coord.routing.inputs import AUTO_MODEL, is_known
from brain_coord.routing.weights import CLASS_WEIGHTS, SCORE_DECIMALS


@dataclass(frozen=True, slots=True)
class Option:
    """One model of one upstream at the moment of a decision.

    Attributes:
        name: of the upstream.
        offer: the model.
        cost_usd: of the request there; `None` is unknown.
        load: share of its slots that are in use.
        out: why it can take nothing now.
        last: why it comes after all others.
        full: whether nothing but a free slot is missing.
    """

    name: str
    offer: Offer
    cost_usd: float | None
    load: float
    out: str | None = None
    last: str | None = None

    @property
    def full(self) -> bool:
        """Whether every slot is in use."""
        return self.load >= 1


@dataclass(frozen=True, slots=True)
class Ranked:
    """The options of a class.

    Attributes:
        able: those that can take the request, best first.
        unable: the others.
    """

    able: tuple[Option, ...]
    unable: tuple[Option, ...]


def wanted(query: Query, offers: Iterable[Offer]) -> list[Offer]:
    """The offers that serve the model asked for; `brain/auto` takes any."""
    return [offer for offer in offers if query.model in (offer.model, AUTO_MODEL)]


def rank_upstreams(query: Query, options: Sequence[Option]) -> Ranked:
    """Order the options of one class.

    First those without trouble; then by cost and quality, with the weights and the unknown penalty of the mode; of equals
    the one with the smaller share of its slots in use, then in the order of the configuration.
    """
    able = [option for option in options if option.out is None and not option.full]
    costs = [option.cost_usd for option in able if is_known(option.cost_usd)]
    scores = {id(option): _score(query, option, costs) for option in able}
    able.sort(key=lambda option: (option.last is not None, scores[id(option)], option.load))
    return Ranked(tuple(able), tuple(option for option in options if option.out is not None or option.full))


def _score(query: Query, option: Option, costs: Sequence[float]) -> float:
    weights = CLASS_WEIGHTS[query.mode]
    cost = quality = weights.unknown_penalty
    if is_known(option.cost_usd):
        least, greatest = min(costs), max(costs)
        cost = (option.cost_usd - least) / (greatest - least) if greatest > least else 0.0
    if is_known(option.offer.quality):
        quality = 1 - min(1.0, option.offer.quality)
    return round(weights.cost * cost + weights.quality * quality, SCORE_DECIMALS)
