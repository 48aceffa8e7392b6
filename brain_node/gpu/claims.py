"""The cards as a node reports them on the wire: what this agent may use, lost ones included."""

from brain_node.contract.messages import GpuClaim
from brain_node.gpu.records import Gpu, Inventory


def claims_of(inventory: Inventory) -> tuple[GpuClaim, ...]:
    """One claim per visible card or slice. Cards that the operator keeps from the agent are nobody's business."""
    return tuple(_claim(gpu) for gpu in inventory.gpus if gpu.visible)


def _claim(gpu: Gpu) -> GpuClaim:
    return GpuClaim(
        name=gpu.name,
        uuid=gpu.uuid,
        kind=gpu.kind.value,
        state=gpu.state.value,
        total_bytes=gpu.total_bytes,
        free_bytes=gpu.free_bytes,
        utilization_percent=gpu.utilization_percent,
        temperature_c=gpu.temperature_c,
        power_w=gpu.power_w,
    )
