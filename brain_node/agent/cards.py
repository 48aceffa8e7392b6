"""What the cards say about an engine: whether its memory came back, and whether its card is still there."""

from brain_node.gpu.records import Gpu, GpuState, Inventory
from brain_node.plan.records import Placement
from brain_node.plan.sizes import gib


def lost_reason(placement: Placement, inventory: Inventory) -> str | None:
    """Why a card of the placement cannot be used any more, or `None`. An empty inventory tells nothing."""
    for index, uuid in zip(placement.gpu_indices, placement.gpu_uuids, strict=True):
        for gpu in inventory.gpus:
            if gpu.uuid == uuid and gpu.state is not GpuState.OK:
                return f"GPU {index} is {gpu.state.value}: {gpu.reason or 'no reason given'}"
    return None


def held_reason(placement: Placement, inventory: Inventory) -> str | None:
    """What keeps an ended engine from starting again on its cards, or `None`."""
    if (lost := lost_reason(placement, inventory)) is not None:
        return lost
    for uuid in placement.gpu_uuids:
        gpu = next((each for each in inventory.gpus if each.uuid == uuid), None)
        if gpu is None or gpu.free_bytes is None or gpu.free_bytes >= placement.needed_bytes:
            continue
        figures = f"{gib(gpu.free_bytes)} free of the {gib(placement.needed_bytes)} needed"
        return f"GPU {gpu.index} is held by {_holder(gpu)} ({figures})"
    return None


def _holder(gpu: Gpu) -> str:
    """The process that uses most of a card."""
    if not gpu.processes:
        return "something the driver does not name"
    most = max(gpu.processes, key=lambda process: process.used_bytes or 0)
    return f"process {most.pid}"
