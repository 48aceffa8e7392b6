"""Pure: a model's shape from what its checkpoint says about itself (`config.json`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from brain_node.contract.engine_flags import flag_value
from brain_node.contract.footprint import Architecture

_MOST: Final = 1 << 20
"""Far above every count that a model has; more is damage."""


class ShapeError(ValueError):
    """A configuration that cannot be true; the text says which member and why."""


def shape_of(config: Mapping[str, Any], weights_bytes: int, args: Sequence[str] = ()) -> Architecture | None:
    """The shape that a checkpoint's configuration tells.

    Args:
        config: The parsed `config.json`.
        weights_bytes: The checkpoint's size on the disk.
        args: The engine flags of the model's catalog entry; a few of them change what is kept in memory.

    Returns:
        The shape, or `None` for a kind of model whose memory the formula does not describe.

    Raises:
        ShapeError: a member holds what no model can have.
    """
    # A model for pictures or sound holds its language model's shape in a part of its own.
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise ShapeError("text_config is no object")
    layers, heads = _count(text, "num_hidden_layers"), _count(text, "num_attention_heads")
    if layers is None or heads is None or "kv_lora_rank" in text:
        return None
    kv_heads = _count(text, "num_key_value_heads") or heads
    if heads % kv_heads:
        raise ShapeError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    head_dim = _count(text, "head_dim") or _head_dim(text, heads)
    if head_dim is None:
        return None
    full, window = _windows(text, layers)
    return Architecture(
        weights_bytes=_loaded_bytes(config, text, weights_bytes, args),
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        kv_value_bytes=1 if (flag_value(args, "--kv-cache-dtype") or "").startswith("fp8") else 2,
        full_attention_layers=full,
        sliding_window=window,
    )


def _count(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 < value <= _MOST:
        raise ShapeError(f"{key} is {str(value)[:40]!r}, not a whole number above 0")
    return value


def _head_dim(text: Mapping[str, Any], heads: int) -> int | None:
    hidden = _count(text, "hidden_size")
    if hidden is not None and hidden % heads:
        raise ShapeError(f"hidden_size {hidden} is no multiple of num_attention_heads {heads}")
    return None if hidden is None else hidden // heads


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int | None, int | None]:
    """Layers that keep the whole context and the window of the others, where the file says it layer by layer."""
    kinds, window = text.get("layer_types"), _count(text, "sliding_window")
    if not isinstance(kinds, list) or len(kinds) != layers or window is None:
        return None, None  # all of them keep everything: never less than is needed
    full = sum(kind != "sliding_attention" for kind in kinds)
    return (None, None) if full == layers else (full, window)


def _loaded_bytes(config: Mapping[str, Any], text: Mapping[str, Any], weights_bytes: int, args: Sequence[str]) -> int:
    """Engines load 32-bit checkpoints in 16 bits unless they are told otherwise."""
    stored = text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    halved = stored == "float32" and flag_value(args, "--dtype") != "float32"
    return -(-weights_bytes // 2) if halved else weights_bytes
