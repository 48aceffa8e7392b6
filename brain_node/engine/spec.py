"""What one engine shall be: the model, its memory, its cards. Frozen, checked, and free of secrets."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from brain_node.contract.engine_flags import FlagError, checked_args, without_flags
from brain_node.engine.environments import EngineEnv, Flavour
from brain_node.engine.errors import SpecError

SMALLEST_CONTEXT: Final = 1024
"""Tokens under which a chat model is of no use; no engine is retried with less."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine as the plan wants it."""

    model_id: str
    """The catalog's name, and the name the engine serves it under."""
    model_path: Path
    """Folder with the weights; they are fetched before an engine starts, so it never needs a network."""
    program: tuple[str, ...]
    """What is run, before the engine's own flags: see `vllm_program`."""
    flavour: Flavour
    args: tuple[str, ...] = ()
    """Flags from the closed set (`brain_node.contract.engine_flags`), as a catalog entry carries them."""
    context: int | None = None
    """Most tokens of prompt and answer together; `None` leaves it to the model."""
    min_context: int = SMALLEST_CONTEXT
    """Least tokens with which this node may still offer the model."""
    max_seqs: int = 16
    """Most requests in one batch; jobs above it wait inside the engine."""
    tensor_parallel: int = 1
    memory_fraction: float | None = None
    """Share of each card's memory, for CUDA."""
    kv_cache_bytes: int | None = None
    """Size of the KV cache; set for CPU engines, where a share of the machine's memory would be far too much."""
    visible_devices: tuple[str, ...] | None = None
    """Card UUIDs the engine may see; `None` leaves the agent's own restriction in force."""
    eager: bool = False
    """Start at once, without compiling: what small models and CPU engines want."""
    replica: int = 0
    """Tells engines of the same model apart."""

    def __post_init__(self) -> None:
        """Check what comes from files and people."""
        try:
            checked = checked_args(self.args)
        except FlagError as error:
            raise SpecError("engine_flag", f"{self.model_id}: {error}", "correct the catalog entry") from None
        object.__setattr__(self, "args", checked)
        if self.memory_fraction is not None and not 0.0 < self.memory_fraction <= 1.0:
            raise SpecError("engine_memory", f"{self.model_id}: memory share {self.memory_fraction}", "report it")

    @property
    def slug(self) -> str:
        """A file name for it, such as `qwen--qwen3-8b` or `qwen--qwen3-8b.1`."""
        name = "".join(char if char.isalnum() or char in "-_." else "-" for char in self.model_id.replace("/", "--"))
        return name if self.replica == 0 else f"{name}.{self.replica}"

    def with_changes(self, context: int | None = None, memory_fraction: float | None = None) -> "EngineSpec":
        """The same engine with less context or a smaller share of memory, as a retry wants it."""
        changed = self
        if context is not None:
            changed = replace(changed, context=context, args=without_flags(changed.args, "--max-model-len"))
        if memory_fraction is not None:
            changed = replace(changed, memory_fraction=memory_fraction)
        return changed


def vllm_program(env: EngineEnv) -> tuple[str, ...]:
    """How vLLM is started: as a module, since the CPU distribution lacks the metadata that its command asks for."""
    return (str(env.python), "-m", "vllm.entrypoints.openai.api_server")
