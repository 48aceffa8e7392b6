"""Reading one card, or one MIG slice, through the binding."""

from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

import pynvml

from brain_node.gpu.memory import Memory, from_first_version, from_second_version, used_by_others
from brain_node.gpu.records import Gpu, GpuKind, GpuProcess, GpuState
from brain_node.gpu.unified import SystemMemory, is_unified

T = TypeVar("T")
Handle = Any

GONE: Final = {
    8: "its power cables are not connected properly",
    11: "its interrupts do not arrive",
    15: "it fell off the bus, or cannot be reached",
    16: "it needs a reset",
}
"""Errors after which nothing of a card can be counted on."""


def gone_reason(error: pynvml.NVMLError) -> str | None:
    """Why the card is lost, or `None` when this error does not mean that."""
    cause = GONE.get(error.value)
    return f"{cause} (NVML error {error.value})" if cause else None


def read_device(
    handle: Handle,
    index: int,
    system_memory: SystemMemory | None,
    own_pids: Collection[int],
) -> Gpu:
    """Read one card.

    Raises:
        pynvml.NVMLError: The card is gone; any other error leaves the one value it concerns `None`.
    """
    name = _optional(pynvml.nvmlDeviceGetName, handle)
    capability = _optional(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    unified = is_unified(name, capability)
    processes = _processes(handle)
    memory = _unified_memory(system_memory) if unified else _memory(handle, processes)
    uuid = _optional(pynvml.nvmlDeviceGetUUID, handle)
    reason = _unusable_reason(memory, uuid, unified=unified)
    pci = _optional(pynvml.nvmlDeviceGetPciInfo_v3, handle)
    power_mw = _optional(pynvml.nvmlDeviceGetPowerUsage, handle)
    limit_mw = _optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    utilization = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Gpu(
        index=index,
        uuid=uuid,
        name=name,
        kind=GpuKind.UNIFIED if unified else GpuKind.DISCRETE,
        state=GpuState.OK if reason is None else GpuState.UNSUPPORTED,
        reason=reason,
        total_bytes=memory.total_bytes if memory else None,
        free_bytes=memory.free_bytes if memory else None,
        reserved_bytes=memory.reserved_bytes if memory else None,
        used_by_others_bytes=used_by_others(memory, processes or (), own_pids) if memory else None,
        utilization_percent=utilization.gpu if utilization is not None else None,
        temperature_c=_optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_w=power_mw / 1000 if power_mw is not None else None,
        power_limit_w=limit_mw / 1000 if limit_mw is not None else None,
        compute_capability=capability,
        pci_bus_id=pci.busId or None if pci is not None else None,
        processes=processes or (),
    )


def read_slices(handle: Handle, card: Gpu, own_pids: Collection[int]) -> tuple[Gpu, ...] | None:
    """Read the MIG slices of a card; `None` when the card is not in MIG mode, empty when nobody has cut it."""
    mode = _optional(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    places = _optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    slices = []
    for place in range(places):
        slice_handle = _optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if slice_handle is not None:
            slices.append(_read_slice(slice_handle, card, place, own_pids))
    return tuple(slices)


def _read_slice(handle: Handle, card: Gpu, place: int, own_pids: Collection[int]) -> Gpu:
    processes = _processes(handle)
    memory = _memory(handle, processes)
    uuid = _optional(pynvml.nvmlDeviceGetUUID, handle)
    reason = _unusable_reason(memory, uuid, unified=False)
    return Gpu(
        index=card.index,
        uuid=uuid,
        name=_optional(pynvml.nvmlDeviceGetName, handle) or card.name,
        kind=GpuKind.MIG,
        state=GpuState.OK if reason is None else GpuState.UNSUPPORTED,
        reason=reason,
        total_bytes=memory.total_bytes if memory else None,
        free_bytes=memory.free_bytes if memory else None,
        reserved_bytes=memory.reserved_bytes if memory else None,
        used_by_others_bytes=used_by_others(memory, processes or (), own_pids) if memory else None,
        temperature_c=card.temperature_c,
        compute_capability=card.compute_capability,
        pci_bus_id=card.pci_bus_id,
        parent_uuid=card.uuid,
        mig_index=place,
        processes=processes or (),
    )


def _memory(handle: Handle, processes: tuple[GpuProcess, ...] | None) -> Memory | None:
    second = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if second is not None and second.total:
        return from_second_version(second.total, second.reserved, second.used, second.free)
    first = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if first is not None and first.total:
        return from_first_version(first.total, first.used, first.free, processes)
    return None


def _unified_memory(system: SystemMemory | None) -> Memory | None:
    if system is None:
        return None
    reserved = min(system.reserve_bytes, system.available_bytes)
    used = system.total_bytes - system.available_bytes
    return Memory(system.total_bytes, reserved, used, system.available_bytes - reserved)


def _unusable_reason(memory: Memory | None, uuid: str | None, *, unified: bool) -> str | None:
    """Why nothing can be put on a card that answers, or `None`."""
    if memory is None and unified:
        return "it shares the machine's RAM, and /proc/meminfo could not be read"
    if memory is None:
        return "the driver does not tell how much memory it has"
    return None if uuid else "the driver does not tell its UUID, by which engines are given their cards"


def _processes(handle: Handle) -> tuple[GpuProcess, ...] | None:
    compute = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if compute is None:
        # Drivers from before 510 know the second version only.
        compute = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle)
    if compute is None:
        return None
    graphics = _optional(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle) or []
    # A program may stand in both lists with the same figure.
    by_pid = {entry.pid: GpuProcess(entry.pid, entry.usedGpuMemory) for entry in (*graphics, *compute)}
    return tuple(by_pid[pid] for pid in sorted(by_pid))


def _optional(call: Callable[..., T], *args: Any) -> T | None:
    try:
        return call(*args)
    except pynvml.NVMLError as error:
        if error.value in GONE:
            raise
        return None
