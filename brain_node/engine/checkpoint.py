"""What the operator's own folders hold: the shape of each local model, read from its files for the planner."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from brain_node.contract.catalog import Catalog, Model
from brain_node.contract.engine_flags import flag_value
from brain_node.contract.footprint import Architecture
from brain_node.plan.shape import ShapeError, shape_of

CONFIG_NAME: Final = "config.json"
_INDEX_NAME: Final = "model.safetensors.index.json"
_LARGEST_JSON_BYTES: Final = 64 << 20


class CheckpointError(Exception):
    """A folder that no engine could serve; the text says what is wrong with which file."""


def with_checkpoints(catalog: Catalog) -> Catalog:
    """The catalog with the shapes of its local models, where the entries themselves do not give them."""
    return Catalog(tuple(_seen(model) for model in catalog), catalog.source)


def _seen(model: Model) -> Model:
    folder = model.local_folder
    if folder is None or model.architecture is not None:
        return model
    try:
        return replace(model, architecture=read_shape(folder, model.args))
    except CheckpointError as error:
        return replace(model, unusable=str(error))


def read_shape(folder: Path, args: tuple[str, ...] = ()) -> Architecture | None:
    """The shape of the checkpoint in a folder, or `None` when its files tell none.

    Raises:
        CheckpointError: a file that every checkpoint has is missing or damaged.
    """
    if not folder.is_dir():
        raise CheckpointError(f"the folder {folder} does not exist")
    if flag_value(args, "--config-format") == "mistral":
        return None  # it has no config.json
    config = _object(folder / CONFIG_NAME)
    try:
        if shape_of(config, 1, args) is None:
            return None
        return shape_of(config, _weights_bytes(folder), args)
    except ShapeError as error:
        raise CheckpointError(f"{folder / CONFIG_NAME} is damaged: {error}") from None


def _object(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON_BYTES:
            raise CheckpointError(f"{path} is damaged: it is too large for what it should be")
        found = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path} is damaged: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is damaged: it holds no object")
    return found


def _weights_bytes(folder: Path) -> int:
    files = _indexed(folder) or _loose(folder)
    if not files:
        raise CheckpointError(f"the folder {folder} holds no weights (*.safetensors)")
    try:
        return sum(path.stat().st_size for path in files)
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename} is missing, and {_INDEX_NAME} names it") from None
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from None


def _indexed(folder: Path) -> list[Path]:
    """The files that the index names; a folder may hold the same weights in another form beside them."""
    path = folder / _INDEX_NAME
    if not path.exists():
        return []
    names = _object(path).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{path} is damaged: it holds no weight_map")
    return [folder / name for name in sorted(set(names.values()))]


def _loose(folder: Path) -> list[Path]:
    for pattern in ("model*.safetensors", "*.safetensors", "*.bin", "*.pt"):
        if files := sorted(folder.glob(pattern)):
            return files
    return []
