"""Pure: the plan of a machine: which models run where and with what, and why others do not."""

from dataclasses import replace

from brain_node.contract.catalog import Catalog, Device, Model, UnknownModelError
from brain_node.plan import reasons
from brain_node.plan.assign import Board, assign
from brain_node.plan.auto import candidates, choose_for_cards
from brain_node.plan.machine import Card, Machine
from brain_node.plan.need import Wanted, wanted
from brain_node.plan.on_cpu import choose_for_cpu, place_on_cpu
from brain_node.plan.records import AUTO, Placement, Plan, PlanRequest, Refusal
from brain_node.plan.share import placement_of


def plan(catalog: Catalog, machine: Machine, request: PlanRequest | None = None) -> Plan:
    """Plan which engines to start.

    The same catalog, machine and request always give the same plan. Free memory is what it was when the machine was
    read: plan anew before every start.
    """
    request = request or PlanRequest()
    on_cards = (request.device or ("cuda" if machine.cards else "cpu")) == "cuda"
    if request.models in ((), (AUTO,)):
        return _auto(catalog, machine, request, on_cards=on_cards)
    models, refusals = _named(catalog, request)
    if not on_cards:
        placements, refused = place_on_cpu(models, machine, request.slots)
        return Plan(tuple(placements), (*refusals, *refused))
    refusals += [reasons.only_on_cpu(each.model) for each in models if each.model.device is Device.CPU]
    if not machine.cards:
        return Plan((), (*refusals, *(reasons.only_on_cards(each.model) for each in models)))
    models = [each for each in models if each.model.device is not Device.CPU]
    placements, refused = _on_cards(models, machine.cards, request)
    return Plan(tuple(placements), (*refusals, *refused))


def survey(catalog: Catalog, machine: Machine, request: PlanRequest | None = None) -> tuple[Placement | Refusal, ...]:
    """For every model of the catalog: how it would run here if it were the only one, or why it would not."""
    base = replace(request or PlanRequest(), replicas=False)
    answers: list[Placement | Refusal] = []
    for model in catalog:
        alone = plan(catalog, machine, replace(base, models=(model.id,)))
        answers.append(alone.placements[0] if alone.placements else alone.refusals[0])
    return tuple(answers)


def _named(catalog: Catalog, request: PlanRequest) -> tuple[list[Wanted], list[Refusal]]:
    models: list[Wanted] = []
    refusals: list[Refusal] = []
    for name in dict.fromkeys(request.models):
        try:
            model = catalog.require(name)
        except UnknownModelError as error:
            refusals.append(reasons.unknown(error))
            continue
        if model.mock:
            refusals.append(reasons.stand_in(model))
        elif model.unusable is not None:
            refusals.append(reasons.unusable(model, model.unusable))
        else:
            models.append(wanted(model, request.context))
    return models, refusals


def _on_cards(
    models: list[Wanted], cards: tuple[Card, ...], request: PlanRequest
) -> tuple[list[Placement], list[Refusal]]:
    seats, left_out = assign(models, cards, replicas=request.replicas)
    board = Board(cards, seats)
    placements = [placement_of(seat, board, request.slots) for seat in seats]
    refusals = [
        reasons.does_not_fit(each, cards, alone_it_would=Board(cards).place(each) is not None)
        for each in models
        if each in left_out
    ]
    return placements, refusals


def _auto(catalog: Catalog, machine: Machine, request: PlanRequest, *, on_cards: bool) -> Plan:
    choices = candidates(catalog, gated=request.gated)
    if not on_cards:
        chosen = choose_for_cpu(choices, machine)
        if chosen is None:
            return Plan((), (_nothing(choices, machine),))
        placements, refused = place_on_cpu([wanted(chosen, request.context)], machine, request.slots)
        return Plan(tuple(placements), tuple(refused))
    placements = []
    for sort in dict.fromkeys(card.sort for card in machine.cards):
        cards = tuple(card for card in machine.cards if card.sort == sort)
        each = choose_for_cards(choices, cards, request.context)
        if each is not None:
            placements += _on_cards([each], cards, request)[0]
    if not placements:
        return Plan((), (_nothing(choices, machine),))
    return Plan(tuple(_numbered(placements)))


def _numbered(placements: list[Placement]) -> list[Placement]:
    """Count the copies of a model over all sorts of cards."""
    seen: dict[str, int] = {}
    numbered = []
    for placement in placements:
        number = seen.get(placement.model.id, 0)
        seen[placement.model.id] = number + 1
        numbered.append(replace(placement, replica=number))
    return numbered


def _nothing(choices: list[Model], machine: Machine) -> Refusal:
    able = [model for model in choices if machine.cards or model.device is not Device.CUDA]
    smallest = min(able, key=lambda model: model.min_vram_mib, default=None)
    if smallest is None:
        return Refusal(
            AUTO,
            "no_model_for_machine",
            "the catalog has no model that this machine could serve",
            "see `brain-node models`",
        )
    if not machine.cards:
        return reasons.only_on_cards(smallest)
    return replace(reasons.does_not_fit(wanted(smallest, None), machine.cards, alone_it_would=False), model_id=AUTO)
