"""The model allowlist: which models a node may launch and a coordinator may route to.

The shipped `catalog.toml` stands beside this module; an operator's own file replaces it whole. Both are `[[model]]`
tables. Names are exact and lower case (`org/name`): the same name in lists, requests, answers and receipts.

Errors:

    CatalogError          the file cannot be used: every fault in it, with line, entry and reason
    UnknownModelError     a name that is not in the catalog, with the nearest names that are
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Final

from brain_node.contract.catalog_file import CatalogFault, RawModel, parse
from brain_node.contract.footprint import MIB, Architecture

MOCK_MODEL_ID: Final = "brain/mock"


class Device(StrEnum):
    """Where a model may run."""

    CUDA = "cuda"  # needs an NVIDIA card
    CPU = "cpu"  # meant for machines without one
    ANY = "any"  # small enough for either


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of the allowlist."""

    id: str
    name: str
    repo: str
    """A hub repository `owner/name`, or the absolute path of a local folder in a file that the operator named."""
    revision: str
    params_b: float
    """Parameters in billions, all of them (for a mixture of experts too)."""
    context: int
    """Tokens of prompt and answer that every node serving this model accepts; `min_vram_mib` is for this many."""
    max_context: int
    """The most tokens the model itself can take; a node with memory to spare may serve up to this many."""
    min_vram_mib: int
    """Free memory, in MiB on one card, without which the model is not launched."""
    license: str
    gated: bool
    """Whether the hub wants a token and an accepted licence before it hands out the weights."""
    device: Device
    args: tuple[str, ...] = ()
    """Engine flags from the closed set, each value its own word."""
    architecture: Architecture | None = None
    """`None` when the file gives no shape: a node then looks into a local folder's own files; a model whose shape stays
    unknown is planned by `min_vram_mib` alone, on one card."""
    min_compute_capability: tuple[int, int] | None = None
    """The oldest card generation whose kernels can run it, such as `(8, 0)`."""
    unusable: str | None = None
    """What is wrong with its local folder, once a node has looked into it."""

    @property
    def mock(self) -> bool:
        """Whether this is the stand-in that answers without a model."""
        return self.id == MOCK_MODEL_ID

    @property
    def local_folder(self) -> Path | None:
        """The folder that holds the weights, or `None` when they come from a hub."""
        return Path(self.repo) if self.repo.startswith("/") else None

    @property
    def min_vram_bytes(self) -> int:
        """`min_vram_mib` in bytes."""
        return self.min_vram_mib * MIB


@dataclass(frozen=True)
class Catalog:
    """The allowlist, in file order; earlier entries win ties."""

    models: tuple[Model, ...]
    source: str
    """The file it was read from, for messages."""

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._by_id

    @cached_property
    def _by_id(self) -> dict[str, Model]:
        return {model.id: model for model in self.models}

    def get(self, model_id: str) -> Model | None:
        """Return the entry of exactly this name, or `None`."""
        return self._by_id.get(model_id)

    def require(self, model_id: str) -> Model:
        """Return the entry of exactly this name.

        Raises:
            UnknownModelError: No entry has it.
        """
        model = self.get(model_id)
        if model is None:
            raise UnknownModelError(model_id, self.nearest(model_id), self.source)
        return model

    def nearest(self, model_id: str, n: int = 3) -> tuple[str, ...]:
        """Return up to `n` names that a person who typed `model_id` may have meant, best first."""
        typed = model_id.strip().lower()
        if not typed:
            return ()

        def likeness(known: str) -> float:
            names = (known, known.partition("/")[2])
            if any(name.startswith(typed) for name in names):
                return 1.0
            return max(difflib.SequenceMatcher(None, typed, name).ratio() for name in names)

        ranked = sorted(self._by_id, key=lambda known: (-likeness(known), known))
        return tuple(known for known in ranked[:n] if likeness(known) >= 0.5)


class UnknownModelError(LookupError):
    """A model name that the catalog does not have."""

    code = "unknown_model"

    def __init__(self, model_id: str, nearest: tuple[str, ...], source: str) -> None:
        self.model_id = model_id
        self.nearest = nearest
        self.message = f"{model_id!r} is not in the model catalog ({source})"
        self.next_step = (
            f"did you mean {' or '.join(nearest)}?" if nearest else "`brain-node models` lists the names that are"
        )
        super().__init__(f"{self.message}; {self.next_step}")


class CatalogError(ValueError):
    """A catalog file that cannot be used. `faults` holds every fault found in it, in file order."""

    code = "catalog_invalid"

    def __init__(self, source: str, faults: tuple[CatalogFault, ...]) -> None:
        self.source = source
        self.faults = faults
        counted = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        self.message = f"catalog {source} has {counted}: " + "; ".join(str(fault) for fault in faults)
        self.next_step = "correct the file, or leave --catalog out to use the shipped catalog"
        super().__init__(f"{self.message}. {self.next_step[0].upper()}{self.next_step[1:]}.")


def load_catalog(path: Path | None = None) -> Catalog:
    """Read the shipped catalog, or the file that the operator named instead of it.

    Args:
        path: The operator's file; only there may `repo` be a local folder (relative ones start at the file's folder).

    Raises:
        CatalogError: The file cannot be read, is not TOML, or an entry breaks a rule.
    """
    if path is None:
        shipped = resources.files("brain_node.contract").joinpath("catalog.toml").read_text(encoding="utf-8")
        return _build("the shipped catalog", shipped, folder=None)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CatalogError(str(path), (CatalogFault(None, None, f"cannot be read: {reason}"),)) from None
    return _build(str(path), text, folder=path.expanduser().absolute().parent)


def _build(source: str, text: str, folder: Path | None) -> Catalog:
    raw_models, faults = parse(text, folder)
    if faults:
        raise CatalogError(source, faults)
    return Catalog(tuple(_model(raw) for raw in raw_models), source)


def _model(raw: RawModel) -> Model:
    return Model(
        id=raw.id,
        name=raw.name,
        repo=raw.repo,
        revision=raw.revision,
        params_b=raw.params_b,
        context=raw.context,
        max_context=raw.max_context or raw.context,
        min_vram_mib=raw.min_vram_mib,
        license=raw.license,
        gated=raw.gated,
        device=Device(raw.device),
        args=tuple(raw.args),
        architecture=raw.architecture(),
        min_compute_capability=raw.capability(),
    )
