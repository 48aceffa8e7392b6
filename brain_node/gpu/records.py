"""What the machine has, as frozen records: bytes, watts and degrees; what is not known is `None`, never 0."""

from dataclasses import dataclass
from enum import StrEnum


class GpuKind(StrEnum):
    """How a card's memory relates to the machine's."""

    DISCRETE = "discrete"  # memory of its own
    MIG = "mig"  # a slice of a discrete card, with memory of its own
    UNIFIED = "unified"  # shares the machine's RAM with every other program


class GpuState(StrEnum):
    """Whether a card can be counted on."""

    OK = "ok"
    LOST = "lost"  # fell off the bus, or the driver says it needs a reset
    UNSUPPORTED = "unsupported"  # there, but the driver does not tell what is needed to use it


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a card."""

    pid: int
    used_bytes: int | None
    """`None` where the driver does not say (WSL, other users' processes)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a person should know, with what to do about it."""

    code: str
    message: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG slice of a card."""

    index: int
    """Place in NVML's list (PCI bus order); a slice has its card's."""
    uuid: str | None
    """`None` for a card that was lost before it was ever read, or whose driver does not tell it."""
    name: str | None
    kind: GpuKind
    state: GpuState
    reason: str | None
    """Why the state is not `OK`."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    """Held by the driver (or kept back for the system, on unified memory); in nobody's use."""
    used_by_others_bytes: int | None = None
    """Used by processes that are not ours. 0 on an idle card, whatever the driver reserves."""
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    compute_capability: tuple[int, int] | None = None
    pci_bus_id: str | None = None
    parent_uuid: str | None = None
    """The card that a MIG slice is cut from."""
    mig_index: int | None = None
    """The slice's place on its card."""
    processes: tuple[GpuProcess, ...] = ()
    visible: bool = True
    """Whether `CUDA_VISIBLE_DEVICES` of this agent lets it be used."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All cards of the machine at one moment."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    """Newest CUDA version the driver can run, such as `13.0`."""
    problems: tuple[Problem, ...] = ()

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The cards that work may be put on, in the order CUDA would number them."""
        return tuple(gpu for gpu in self.gpus if gpu.visible and gpu.state is GpuState.OK)
