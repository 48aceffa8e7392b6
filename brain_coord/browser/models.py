"""The language models that tabs may hold: cut into stages, every piece of weights with its hash. Kept as JSON files."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from brain_coord.browser.checkpoint import (
    EMBEDDINGS,
    CheckpointError,
    Embeddings,
    Qwen3Config,
    Tensor,
    read_config,
    read_tensors,
    stage_tensors,
)
from brain_coord.browser.speech import Speech

FOLDER: Final = "browser-models"
PIECE_BYTES: Final = 8 * 1024 * 1024
MOST_CONTEXT: Final = 4096

_ID: Final = re.compile(r"[a-z0-9][a-z0-9._/-]{0,120}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file."""

    sha256: str
    file: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Stage:
    """Layers of a model that one tab holds together."""

    name: str
    """`MODEL#1/2`: as the node router and receipts call it."""
    number: int
    first: int
    last: int
    final: bool
    tensors: tuple[tuple[Tensor, tuple[Piece, ...]], ...] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Of its weights."""
        return sum(tensor.size_bytes for tensor, _ in self.tensors)

    @property
    def need_mib(self) -> int:
        """Memory that a tab must offer: the weights and an eighth more for caches and activations."""
        return max(1, self.size_bytes * 9 // 8 // 2**20)


@dataclass(frozen=True)
class BrowserModel:
    """One model."""

    model_id: str
    folder: Path
    config: Qwen3Config
    stages: tuple[Stage, ...]
    replicas: int
    """How many tabs are to hold each stage where there are enough; two must agree."""

    @property
    def context(self) -> int:
        """Positions that an answer and its prompt may have."""
        return min(MOST_CONTEXT, self.config.max_position_embeddings)

    @cached_property
    def embeddings(self) -> Embeddings:
        """Looked up here, so that tabs get activations and not the table."""
        return Embeddings(self.folder, read_tensors(self.folder)[EMBEDDINGS])

    def load_header(self, stage: Stage) -> dict[str, Any]:
        """What a tab needs to load a stage."""
        return {
            "stage": stage.name,
            "first": stage.first,
            "last": stage.last,
            "final": stage.final,
            "context": self.context,
            "config": self.config.to_dict(),
            "tensors": [
                {
                    "name": tensor.name,
                    "dtype": tensor.dtype,
                    "shape": list(tensor.shape),
                    "bytes": tensor.size_bytes,
                    "pieces": [{"sha256": piece.sha256, "bytes": piece.size_bytes} for piece in pieces],
                }
                for tensor, pieces in stage.tensors
            ],
        }


def slug_of(model_id: str) -> str:
    """A file name for a model."""
    return re.sub(r"[^a-z0-9.-]+", "_", model_id)


def add_model(data_dir: Path, folder: Path, model_id: str, *, stages: int, replicas: int) -> BrowserModel:
    """Hash a checkpoint and write down how it is cut.

    Raises:
        CheckpointError: the folder cannot be served to tabs.
    """
    if not _ID.fullmatch(model_id):
        raise CheckpointError(f"{model_id!r} is no model id; use small letters, digits and . _ - /")
    folder = folder.resolve()
    config, tensors = read_config(folder), read_tensors(folder)
    Speech(folder)  # a model that cannot be talked to is not offered, so it is better said now
    if not 1 <= stages <= config.num_hidden_layers:
        raise CheckpointError(
            f"a model of {config.num_hidden_layers} layers has 1 to {config.num_hidden_layers} stages"
        )
    if EMBEDDINGS not in tensors:
        raise CheckpointError(f"the checkpoint lacks {EMBEDDINGS}")
    needed = stage_tensors(config, tensors, 0, config.num_hidden_layers)
    record = {
        "id": model_id,
        "folder": str(folder),
        "stages": stages,
        "replicas": replicas,
        "pieces": {tensor.name: _hashes(folder, tensor) for tensor in needed},
    }
    place = data_dir / FOLDER
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / f"{slug_of(model_id)}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record), encoding="utf-8")
    fresh.replace(path)
    return read_model(path)


def _hashes(folder: Path, tensor: Tensor) -> list[str]:
    return [
        hashlib.sha256(read_bytes(folder / tensor.file, offset, size)).hexdigest() for offset, size in _spans(tensor)
    ]


def _spans(tensor: Tensor) -> Iterator[tuple[int, int]]:
    for begin in range(0, tensor.size_bytes, PIECE_BYTES):
        yield tensor.offset + begin, min(PIECE_BYTES, tensor.size_bytes - begin)


def read_bytes(path: Path, offset: int, size: int) -> bytes:
    """Some bytes of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def read_model(path: Path) -> BrowserModel:
    """A model as it was written down.

    Raises:
        CheckpointError: its checkpoint is gone or changed.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    folder = Path(record["folder"])
    config, tensors = read_config(folder), read_tensors(folder)
    count, layers = record["stages"], config.num_hidden_layers
    stages = []
    for number in range(count):
        first, last = layers * number // count, layers * (number + 1) // count
        parts = []
        for tensor in stage_tensors(config, tensors, first, last):
            hashes = record["pieces"].get(tensor.name, [])
            spans = list(_spans(tensor))
            if len(hashes) != len(spans):
                raise CheckpointError(f"{folder} changed since it was added; add it again")
            pieces = [Piece(sha, tensor.file, offset, size) for sha, (offset, size) in zip(hashes, spans, strict=True)]
            parts.append((tensor, tuple(pieces)))
        name = f"{record['id']}#{number + 1}/{count}"
        stages.append(Stage(name, number, first, last, last == layers, tuple(parts)))
    return BrowserModel(record["id"], folder, config, tuple(stages), record["replicas"])


def remove_model(data_dir: Path, model_id: str) -> bool:
    """Forget a model; its checkpoint stays where it is."""
    path = data_dir / FOLDER / f"{slug_of(model_id)}.json"
    if not path.exists():
        return False
    path.unlink()
    return True


def model_files(data_dir: Path) -> list[Path]:
    """Where models are written down."""
    return sorted((data_dir / FOLDER).glob("*.json"))
