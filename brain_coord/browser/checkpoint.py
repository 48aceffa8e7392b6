"""A Qwen3 checkpoint on disk: its configuration, and where each tensor's bytes stand. Nothing is converted or copied."""

import json
import struct
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DTYPES: Final = {"F32": 4, "F16": 2, "BF16": 2}
EMBEDDINGS: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
FINAL_NORM: Final = "model.norm.weight"

LAYER_TENSORS: Final = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


class CheckpointError(Exception):
    """The folder is no checkpoint that tabs can run; the text says why."""


@dataclass(frozen=True, slots=True)
class Qwen3Config:
    """What the kernels have to know of a model; names as in `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    def to_dict(self) -> dict[str, Any]:
        """As a tab gets it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    """Of its first byte in the file."""

    @property
    def size_bytes(self) -> int:
        """Of all of it."""
        return prod(self.shape) * DTYPES[self.dtype]


def read_config(folder: Path) -> Qwen3Config:
    """The configuration in a folder.

    Raises:
        CheckpointError: it is not a Qwen3 that the kernels can run.
    """
    data = _json(folder / "config.json")
    if data.get("model_type") != "qwen3":
        raise CheckpointError(f"{folder} holds a {data.get('model_type')!r} model; tabs run dense qwen3")
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(f"tabs do not run rope type {rope['rope_type']!r}")
    if data.get("attention_bias") or data.get("use_sliding_window"):
        raise CheckpointError("tabs run no attention with biases or sliding windows")
    if data.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"tabs do not run the activation {data['hidden_act']!r}")
    try:
        return Qwen3Config(
            **{
                name: int(data[name])
                for name in (
                    "vocab_size",
                    "hidden_size",
                    "intermediate_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "num_key_value_heads",
                    "head_dim",
                    "max_position_embeddings",
                )
            },
            rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or data["rope_theta"]),
            tie_word_embeddings=bool(data.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise CheckpointError(f"config.json does not say {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"config.json holds a value of the wrong kind: {error}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        raise CheckpointError(f"cannot read {path}: {reason}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds no object")
    return data


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder's safetensors files, by name.

    Raises:
        CheckpointError: a file is damaged, or a tensor is of a type that shaders cannot read.
    """
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
            if length > min(size, 100_000_000):
                raise CheckpointError(f"{path} is no safetensors file")
            try:
                header = dict(json.loads(file.read(length)))
            except (ValueError, TypeError):
                raise CheckpointError(f"{path} is no safetensors file") from None
        header.pop("__metadata__", None)
        for name, entry in header.items():
            try:
                dtype, shape, (begin, end) = entry["dtype"], tuple(map(int, entry["shape"])), entry["data_offsets"]
            except (KeyError, TypeError, ValueError):
                raise CheckpointError(f"{path} does not say where {name} is") from None
            if dtype not in DTYPES:
                raise CheckpointError(f"{name} is of type {dtype}; tabs read {', '.join(DTYPES)}")
            tensor = Tensor(name, dtype, shape, path.name, 8 + length + begin)
            if tensor.size_bytes != end - begin or 8 + length + end > size:
                raise CheckpointError(f"{name} in {path} is not whole")
            found[name] = tensor
    if not found:
        raise CheckpointError(f"{folder} holds no *.safetensors")
    return found


def stage_tensors(config: Qwen3Config, tensors: dict[str, Tensor], first: int, last: int) -> list[Tensor]:
    """What the layers from `first` to before `last` need; with the last layer also the output head.

    Raises:
        CheckpointError: one is missing.
    """
    names = [f"model.layers.{layer}.{name}" for layer in range(first, last) for name in LAYER_TENSORS]
    if last == config.num_hidden_layers:
        names += [FINAL_NORM, HEAD if HEAD in tensors and not config.tie_word_embeddings else EMBEDDINGS]
    missing = [name for name in names if name not in tensors]
    if missing:
        raise CheckpointError(
            f"the checkpoint lacks {missing[0]}" + (f" and {len(missing) - 1} more" * (len(missing) > 1))
        )
    return [tensors[name] for name in names]


class Embeddings:
    """The embedding matrix, mapped and not read: only the rows that are asked for come from the disk."""

    def __init__(self, folder: Path, tensor: Tensor) -> None:
        kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor.dtype]
        self._bf16 = tensor.dtype == "BF16"
        self._rows: NDArray[Any] = np.memmap(
            folder / tensor.file, dtype=kind, mode="r", offset=tensor.offset, shape=(tensor.shape[0], tensor.shape[1])
        )

    def __call__(self, tokens: list[int]) -> NDArray[np.float32]:
        """Activations of these tokens."""
        rows = self._rows[tokens]
        if self._bf16:
            return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return rows.astype(np.float32)
