"""What the planner is asked and what it answers, as frozen records."""

from dataclasses import dataclass
from typing import Final, Literal

from brain_node.contract.catalog import Model

AUTO: Final = "auto"
"""The model name that leaves the choice to the planner."""

EngineDevice = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the operator wants served."""

    models: tuple[str, ...] = (AUTO,)
    """Catalog names in order of preference, or `AUTO` alone."""
    context: int | None = None
    """Serve this many tokens instead of what the catalog says; less needs less memory."""
    slots: int | None = None
    """Requests at a time per engine, instead of what the memory suggests."""
    replicas: bool = True
    """Whether equal cards that are left over run further copies."""
    device: EngineDevice | None = None
    """What the installed engine runs on; `None`: cards when there are any, else the CPU."""
    gated: bool = False
    """Whether `AUTO` may pick models for which the hub wants a token."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One engine to start: a model, where it runs, and with what."""

    model: Model
    device: EngineDevice
    max_model_len: int
    """Tokens of prompt and answer; what the node may advertise."""
    slots: int
    """Requests the engine works on at a time."""
    args: tuple[str, ...] = ()
    """The catalog's engine flags, without those that the members here decide, plus what the card demands."""
    gpu_uuids: tuple[str, ...] = ()
    gpu_indices: tuple[int, ...] = ()
    tensor_parallel: int = 1
    gpu_memory_utilization: float | None = None
    """Share of each card's total memory that the engine may take; `None` on the CPU."""
    kv_cache_bytes: int | None = None
    """Size of the KV cache to ask for on the CPU; `None` on cards, where the engine takes what its share leaves."""
    kv_cache_tokens: int | None = None
    """Tokens that the KV cache is expected to hold; `None` when the catalog does not tell the model's shape."""
    needed_bytes: int = 0
    """The floor: bytes per card (or of RAM) without which it would not start."""
    budget_bytes: int = 0
    """Bytes per card (or of RAM) that are set aside for it, the driver's share included."""
    replica: int = 0
    """0 for the first engine of a model, then 1, 2, …"""

    @property
    def flags(self) -> tuple[str, ...]:
        """Every engine flag that this placement decides or carries; address, port and model are the launcher's."""
        words = ["--max-model-len", str(self.max_model_len), "--max-num-seqs", str(self.slots)]
        if self.gpu_memory_utilization is not None:
            words += ["--gpu-memory-utilization", f"{self.gpu_memory_utilization:.4f}"]
            words += ["--tensor-parallel-size", str(self.tensor_parallel)]
        if self.kv_cache_bytes is not None:
            words += ["--kv-cache-memory-bytes", str(self.kv_cache_bytes)]
        return (*words, *self.args)

    @property
    def environment(self) -> dict[str, str]:
        """What the engine's process must see: its own cards and no other.

        UUIDs, because an index means one card to the driver and another to CUDA; and the driver's order as well, for
        programs inside the engine that count.
        """
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpu_uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A model that is not placed, and why."""

    model_id: str
    code: str
    message: str
    """One line with the numbers."""
    next_step: str
    needed_bytes: int | None = None
    """Bytes that would have to be free on one card (or in RAM)."""
    free_bytes: int | None = None
    """The most that is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which engines to start, and what cannot be started.

    Engines that share a card have to be started one after the other: each measures the card while it starts.
    """

    placements: tuple[Placement, ...] = ()
    refusals: tuple[Refusal, ...] = ()
