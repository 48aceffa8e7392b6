"""Pure: why a model is not placed, as one line with the numbers, and what would help."""

from collections.abc import Sequence

from brain_node.contract.catalog import Model, UnknownModelError
from brain_node.plan.assign import Seat
from brain_node.plan.machine import MIB, Card
from brain_node.plan.need import Wanted, too_old
from brain_node.plan.records import Refusal
from brain_node.plan.sizes import gib, gib_apart


def unknown(error: UnknownModelError) -> Refusal:
    """The catalog has no such name."""
    return Refusal(error.model_id, error.code, error.message, error.next_step)


def stand_in(model: Model) -> Refusal:
    """The mock needs no plan and is no model."""
    return Refusal(
        model.id,
        "mock_model",
        f"{model.id} answers without a model; no engine is started for it",
        "join with --engine mock to serve it",
    )


def unusable(model: Model, fault: str) -> Refusal:
    """Its local folder cannot be served."""
    return Refusal(
        model.id,
        "checkpoint_unusable",
        f"{model.id} cannot be served: {fault}",
        "put the whole checkpoint there (config.json and *.safetensors), or correct `repo` in the catalog",
    )


def only_on_cards(model: Model) -> Refusal:
    """A model too large for a CPU."""
    return Refusal(
        model.id,
        "needs_gpu",
        f"{model.id} needs an NVIDIA card, and none is used here",
        "see `brain-node gpus`; `brain-node models` shows what this machine can serve",
        needed_bytes=model.min_vram_bytes,
    )


def only_on_cpu(model: Model) -> Refusal:
    """A model for machines without cards."""
    return Refusal(
        model.id,
        "needs_cpu_engine",
        f"{model.id} is for engines that run on the CPU, and the engine here runs on NVIDIA cards",
        "install the CPU engine (`brain-node engine install --cpu`) or choose another model",
    )


def not_enough_ram(wanted: Wanted, needed: int, left: int, *, taken: bool) -> Refusal:
    """Too little RAM for an engine on the CPU."""
    needs, has = gib_apart(needed, left)
    meanwhile = " beside the models before it" if taken else ""
    return Refusal(
        wanted.model.id,
        "not_enough_ram",
        f"{wanted.model.id} needs {needs} of RAM, and {has} can be taken{meanwhile}",
        "close other programs, or choose a smaller model",
        needed_bytes=needed,
        free_bytes=left,
    )


def does_not_fit(wanted: Wanted, cards: Sequence[Card], *, alone_it_would: bool) -> Refusal:
    """No card, and no group of cards, can hold the model now.

    Args:
        wanted: The model.
        cards: All usable cards.
        alone_it_would: Whether it would fit if the other requested models were not there.
    """
    model = wanted.model
    able = [card for card in cards if not too_old(model, card)]
    if not able:
        return _too_old(model, cards)
    best = max(able, key=lambda card: (card.free_bytes, -card.index))
    needed = wanted.bytes_per_card(1)
    if alone_it_would:
        message = f"{model.id} would fit, but the other models asked for take the cards it needs"
        step = "ask for fewer models, or put it first on a machine of its own"
        return Refusal(model.id, "cards_taken", message, step, needed, best.free_bytes)
    needs, has = gib_apart(needed, best.free_bytes)
    message = (
        f"{model.id} needs {needs} free on one card{_parts(wanted)}; the most that is free is"
        f" {has} of {gib(best.total_bytes)} on {best.label}"
    )
    tried = _several_cards(wanted, able)
    code = "heads_do_not_divide" if any(would_do for _, would_do in tried) else "not_enough_memory"
    message += "".join(f"; {text}" for text, _ in tried)
    return Refusal(model.id, code, message, _advice(wanted, best), needed, best.free_bytes)


def _too_old(model: Model, cards: Sequence[Card]) -> Refusal:
    newest = max(cards, key=lambda card: card.compute_capability or (0, 0))
    needed = too_old(model, newest) or (0, 0)
    has = newest.compute_capability or (0, 0)
    return Refusal(
        model.id,
        "card_too_old",
        f"{model.id} needs compute capability {needed[0]}.{needed[1]}; {newest.label} has {has[0]}.{has[1]}",
        "choose a model that older cards can run, or use a newer card",
    )


def _parts(wanted: Wanted) -> str:
    shape = wanted.model.architecture
    # Nothing is explained where an operator's file asks for more than the formula gives.
    if shape is None or wanted.bytes_per_card(1) - shape.floor_bytes(wanted.context) >= MIB:
        return ""
    kv = shape.kv_bytes(wanted.context)
    rest = wanted.bytes_per_card(1) - shape.weights_bytes - kv
    return (
        f" (weights {gib(shape.weights_bytes)}, KV cache of {wanted.context} tokens {gib(kv)},"
        f" activations and driver {gib(rest)})"
    )


def _several_cards(wanted: Wanted, cards: Sequence[Card]) -> list[tuple[str, bool]]:
    """What each number of cards above one came to, and whether only the heads stood in the way."""
    shape = wanted.model.architecture
    if shape is None:
        return []
    joinable = sorted((card for card in cards if not card.alone), key=lambda card: -card.free_bytes)
    outcomes = []
    for size in range(2, len(joinable) + 1):
        group = tuple(joinable[:size])
        needed, smallest = wanted.bytes_per_card(size), group[-1].free_bytes
        if not shape.divides(size):
            text = f"{size} cards cannot share its {shape.attention_heads} heads evenly"
            outcomes.append((text, needed <= smallest))
        elif needed > smallest:
            needs, has = gib_apart(needed, smallest)
            outcomes.append((f"on {size} cards it needs {needs} on each, and the smallest has {has}", False))
        else:
            outcomes.append((_unlike_cards(Seat(wanted, group)), False))
    return outcomes


def _unlike_cards(seat: Seat) -> str:
    short = max(seat.cards, key=lambda card: seat.needed_on(card) - card.free_bytes)
    needs, has = gib_apart(seat.needed_on(short), short.free_bytes)
    every = "both" if len(seat.cards) == 2 else f"all {len(seat.cards)}"
    return f"on {len(seat.cards)} unlike cards the engine takes the same share of {every}: {needs}, and {has} free on {short.label}"


def _advice(wanted: Wanted, best: Card) -> str:
    model, shape = wanted.model, wanted.model.architecture
    if wanted.bytes_per_card(1) <= best.total_bytes:
        freed = "free memory on the card (`brain-node gpus` shows who uses it)"
        if shape is not None and wanted.context > 2048 and shape.floor_bytes(2048) <= best.free_bytes:
            return f"{freed}, or ask for a shorter context"
        return freed
    if shape is None:
        return "choose a smaller model; with its shape in the catalog it could also be shared by several cards"
    return f"choose a smaller or quantised model than {model.name}, or add cards"
