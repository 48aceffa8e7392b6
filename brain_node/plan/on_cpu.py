"""Pure: models on a machine without cards. RAM takes the place of card memory; speed, not size, is the limit."""

from collections.abc import Sequence
from typing import Final

from brain_node.contract.catalog import Device, Model
from brain_node.contract.engine_flags import flag_value, without_flags
from brain_node.contract.footprint import CPU_RUNTIME_BYTES
from brain_node.plan.machine import MIB, Machine
from brain_node.plan.need import Wanted
from brain_node.plan.reasons import not_enough_ram, only_on_cards
from brain_node.plan.records import Placement, Refusal

SLOTS: Final = 4
"""Requests at a time on a CPU: more would only make each of them slower."""

RESERVE_FRACTION: Final = 0.05
RESERVE_FLOOR_BYTES: Final = 1024 * MIB
"""Kept back for everything else on the machine: 5 % of all RAM, at least 1 GiB."""

UNKNOWN_SHAPE_KV_BYTES: Final = 256 * MIB
MAX_EXTRA_KV_BYTES: Final = 1024 * MIB
"""Most KV cache beyond one full context: it is RAM that other programs would have to do without."""

BILLIONS_PER_CORE: Final = 0.1
"""Parameters, in billions per core, above which a CPU answers too slowly for `auto` to choose the model."""


def usable_ram_bytes(machine: Machine) -> int:
    """RAM that engines may take now."""
    reserve = max(RESERVE_FLOOR_BYTES, int(machine.ram_total_bytes * RESERVE_FRACTION))
    return max(0, machine.ram_available_bytes - reserve)


def place_on_cpu(
    models: Sequence[Wanted], machine: Machine, slots: int | None
) -> tuple[list[Placement], list[Refusal]]:
    """Place models one after the other while the RAM lasts."""
    left = usable_ram_bytes(machine)
    placements: list[Placement] = []
    refusals: list[Refusal] = []
    for wanted in models:
        if wanted.model.device is Device.CUDA:
            refusals.append(only_on_cards(wanted.model))
            continue
        needed = ram_floor_bytes(wanted)
        if needed > left:
            refusals.append(not_enough_ram(wanted, needed, left, taken=bool(placements)))
            continue
        placement = _placement(wanted, needed, left, slots)
        left -= placement.budget_bytes
        placements.append(placement)
    return placements, refusals


def ram_floor_bytes(wanted: Wanted) -> int:
    """RAM without which the model does not start on a CPU."""
    shape = wanted.model.architecture
    if shape is None:
        return max(wanted.model.min_vram_bytes, CPU_RUNTIME_BYTES + UNKNOWN_SHAPE_KV_BYTES)
    return shape.ram_floor_bytes(wanted.context)


def choose_for_cpu(candidates: Sequence[Model], machine: Machine) -> Model | None:
    """The largest model that this CPU can answer with in good time, else the smallest there is."""
    able = [model for model in candidates if model.device is not Device.CUDA]
    quick = [model for model in able if model.params_b <= BILLIONS_PER_CORE * machine.cpu_count]
    fitting = [model for model in quick if ram_floor_bytes(_plain(model)) <= usable_ram_bytes(machine)]
    if fitting:
        return max(fitting, key=lambda model: model.params_b)
    return min(able, key=lambda model: model.params_b, default=None)


def _plain(model: Model) -> Wanted:
    return Wanted(model, model.context, model.context)


def _placement(wanted: Wanted, needed: int, left: int, slots: int | None) -> Placement:
    model, shape = wanted.model, wanted.model.architecture
    limit = flag_value(model.args, "--max-num-seqs")
    chosen = slots if slots is not None else SLOTS
    if limit:
        chosen = min(chosen, int(limit))
    if shape is None:
        kv_bytes, extra, tokens = UNKNOWN_SHAPE_KV_BYTES, 0, None
    else:
        one = shape.kv_bytes(wanted.context)
        extra = min(one * (chosen - 1), (left - needed) // 2, MAX_EXTRA_KV_BYTES) // MIB * MIB
        kv_bytes = -(-(one + extra) // MIB) * MIB
        tokens = shape.kv_tokens(kv_bytes)
    return Placement(
        model=model,
        device="cpu",
        max_model_len=wanted.context,
        slots=max(1, chosen),
        args=without_flags(model.args, "--max-model-len", "--max-num-seqs"),
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=tokens,
        needed_bytes=needed,
        budget_bytes=needed + extra,
    )
