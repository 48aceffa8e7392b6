"""Reading the whole machine: the one seam between the agent and NVML. Blocking; `feed.py` keeps it off the event loop."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pynvml

from brain_node.gpu import problems
from brain_node.gpu.device import gone_reason, read_device, read_slices
from brain_node.gpu.library import Platform, start
from brain_node.gpu.records import Gpu, GpuKind, GpuState, Inventory, Problem
from brain_node.gpu.unified import SystemMemory, parse_meminfo
from brain_node.gpu.visible import Device, ambiguous_order, visible_devices

_RESTART_AFTER: Final = (1, problems.DRIVER_NOT_LOADED, problems.VERSION_MISMATCH)
"""Errors after which the library has to be started again (uninitialised, driver reloaded or updated)."""


@dataclass
class GpuReader:
    """Reads the machine's cards again and again; remembers them, so that one that vanishes is named and not forgotten.

    Not safe to use from two threads at once.
    """

    own_pids: Callable[[], Collection[int]] = frozenset
    """The processes whose memory is ours: the engines this agent runs."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: Platform = field(default_factory=Platform.here)
    meminfo: Path = Path("/proc/meminfo")
    _started: bool = False
    _known: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)
    """What was last read of each card: it, or its slices. By UUID, as places move up when a driver that was loaded anew
    misses a card; the one that was read last comes last."""
    _seen: set[str] = field(default_factory=set)
    """The cards that this reading has come across."""

    def read(self) -> Inventory:
        """Read all cards now. Never raises for what the driver says: faults are in `problems` and in each card's state."""
        if not self._started:
            problem = start(self.platform)
            if problem is not None:
                return self._without_driver(problem)
            self._started = True
        try:
            return self._read()
        except pynvml.NVMLError as error:
            if error.value in _RESTART_AFTER:
                self._started = False
            wsl = self.platform.wsl
            return self._without_driver(problems.cannot_start(error.value, str(error), [], wsl=wsl))

    def close(self) -> None:
        """Let go of the driver."""
        if self._started:
            self._started = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return

    def _read(self) -> Inventory:
        count = pynvml.nvmlDeviceGetCount()
        system_memory = self._system_memory()
        own_pids = self.own_pids()
        found: list[Problem] = []
        gpus: list[Gpu] = []
        self._seen.clear()
        for index in range(count):
            gpus.extend(self._read_card(index, system_memory, own_pids, found))
        for vanished in self._missed():
            gpus.extend(_lost(vanished, "the driver no longer lists it", found))
        if not gpus:
            found.append(problems.no_gpu())
        return Inventory(
            gpus=self._mark_visible(gpus, found),
            driver=_driver_version(),
            cuda=_cuda_version(),
            problems=tuple(found),
        )

    def _read_card(
        self, index: int, system_memory: SystemMemory | None, own_pids: Collection[int], found: list[Problem]
    ) -> tuple[Gpu, ...]:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            card = read_device(handle, index, system_memory, own_pids)
            slices = read_slices(handle, card, own_pids)
        except pynvml.NVMLError as error:
            if error.value in _RESTART_AFTER:
                raise
            if error.value == problems.NO_PERMISSION:
                return self._forbidden(index, found)
            reason = gone_reason(error) or f"it cannot be asked: {error} (NVML error {error.value})"
            return self._lost_at(index, reason, found)
        key = card.uuid or f"place {index}"
        self._seen.add(key)
        self._known.pop(key, None)
        self._known[key] = slices or (card,)
        if slices is None:
            if card.state is GpuState.UNSUPPORTED:
                found.append(problems.gpu_unsupported(_label(card), card.reason or ""))
            return (card,)
        if not slices:
            found.append(problems.mig_without_slices(_label(card)))
            return (replace(card, state=GpuState.UNSUPPORTED, reason="it is in MIG mode but has no slice"),)
        return slices

    def _missed(self) -> list[tuple[Gpu, ...]]:
        """Those that this reading has not come across, by their places."""
        missed = [known for key, known in self._known.items() if key not in self._seen]
        return sorted(missed, key=lambda known: known[0].index)

    def _known_at(self, index: int) -> str | None:
        """The card that was last read at a place, if it was not met elsewhere."""
        keys = [key for key, known in self._known.items() if known[0].index == index and key not in self._seen]
        return keys[-1] if keys else None

    def _lost_at(self, index: int, reason: str, found: list[Problem]) -> tuple[Gpu, ...]:
        key = self._known_at(index)
        if key is None:
            return _lost((Gpu(index, None, None, GpuKind.DISCRETE, GpuState.LOST, reason),), reason, found)
        self._seen.add(key)
        return _lost(self._known[key], reason, found)

    def _forbidden(self, index: int, found: list[Problem]) -> tuple[Gpu, ...]:
        """A card that was never ours to use; one that was, until now, is as good as lost."""
        if self._known_at(index) is not None:
            return self._lost_at(index, "this user may not talk to it any more", found)
        gpu = Gpu(index, None, None, GpuKind.DISCRETE, GpuState.UNSUPPORTED, "this user may not talk to it")
        found.append(problems.gpu_forbidden(_label(gpu)))
        return (gpu,)

    def _mark_visible(self, gpus: list[Gpu], found: list[Problem]) -> tuple[Gpu, ...]:
        value = self.environment.get("CUDA_VISIBLE_DEVICES")
        if value is None:
            return tuple(gpus)
        visible = visible_devices(_devices(gpus), value)
        names = [gpu.name for gpu in gpus]
        if not visible.uuids and gpus:
            found.append(problems.nothing_visible(value, visible.stopped_at))
        elif visible.stopped_at is not None:
            found.append(problems.visible_list_cut(value, visible.stopped_at))
        elif ambiguous_order(visible, names, self.environment.get("CUDA_DEVICE_ORDER")):
            found.append(problems.visible_order_unclear(value))
        marked = [replace(gpu, visible=gpu.uuid in visible.uuids) for gpu in gpus]
        order = {uuid: place for place, uuid in enumerate(visible.uuids)}
        return tuple(sorted(marked, key=lambda gpu: order.get(gpu.uuid or "", len(order))))

    def _without_driver(self, problem: Problem) -> Inventory:
        # Cards that were there a moment ago did not become "none": they are lost for as long as the driver is silent.
        self._seen.clear()
        gpus = tuple(gpu for known in self._missed() for gpu in _lost(known, problem.message, []))
        return Inventory(gpus=gpus, problems=(problem,))

    def _system_memory(self) -> SystemMemory | None:
        try:
            return parse_meminfo(self.meminfo.read_text(encoding="ascii", errors="replace"))
        except OSError:
            return None


def _lost(known: tuple[Gpu, ...], reason: str, found: list[Problem]) -> tuple[Gpu, ...]:
    """A card as lost, and with it all of its slices, as engines run on those."""
    found.append(problems.gpu_lost(_label(known[0]), reason))
    return tuple(_as_lost(before, reason) for before in known)


def _as_lost(before: Gpu, reason: str) -> Gpu:
    """A card or slice of which nothing but its name can be counted on any more."""
    return Gpu(
        index=before.index,
        uuid=before.uuid,
        name=before.name,
        kind=before.kind,
        state=GpuState.LOST,
        reason=reason,
        compute_capability=before.compute_capability,
        pci_bus_id=before.pci_bus_id,
        parent_uuid=before.parent_uuid,
        mig_index=before.mig_index,
    )


def _devices(gpus: list[Gpu]) -> list[Device]:
    by_index: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        by_index.setdefault(gpu.index, []).append(gpu)
    devices = []
    for index in range(max(by_index, default=-1) + 1):
        cards = by_index.get(index, [])
        slices = tuple(gpu.uuid for gpu in cards if gpu.kind is GpuKind.MIG and gpu.uuid)
        devices.append(Device(uuid=cards[0].uuid if cards and not slices else None, slices=slices))
    return devices


def _label(gpu: Gpu) -> str:
    return f"GPU {gpu.index}" + (f" ({gpu.name})" if gpu.name else "")


def _driver_version() -> str | None:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _cuda_version() -> str | None:
    for call in (pynvml.nvmlSystemGetCudaDriverVersion_v2, pynvml.nvmlSystemGetCudaDriverVersion):
        try:
            number = call()
        except pynvml.NVMLError:
            continue
        return f"{number // 1000}.{number % 1000 // 10}"
    return None
