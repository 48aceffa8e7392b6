"""The form of a catalog file: its keys, their types and rules, and what is said about each fault."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails

from brain_node.contract.engine_flags import FlagError, checked_args
from brain_node.contract.footprint import ACTIVATION_BYTES, MIB, Architecture

MODEL_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")
HUB_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_SHAPE: Final = ("weights_bytes", "layers", "attention_heads", "kv_heads", "head_dim")

Text = Annotated[str, Field(min_length=1, max_length=200)]
Whole = Annotated[int, Field(gt=0, lt=1 << 53)]


@dataclass(frozen=True, slots=True)
class CatalogFault:
    """One thing that is wrong in a catalog file."""

    line: int | None
    """Where the entry begins (or where TOML stopped making sense), counted from 1."""
    entry: str | None
    """The entry's id, or its number when it has none."""
    reason: str

    def __str__(self) -> str:
        place = ", ".join(
            part
            for part in (f"line {self.line}" if self.line else "", f"model {self.entry}" if self.entry else "")
            if part
        )
        return f"{place}: {self.reason}" if place else self.reason


class RawModel(BaseModel):
    """One `[[model]]` table as it stands in the file. Strict: `"7"` is no number and `1` is no truth value."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    id: Text
    name: Text
    repo: Text
    revision: Text
    params_b: Annotated[float, Field(ge=0, le=100_000)]
    context: Whole
    min_vram_mib: Annotated[int, Field(ge=0, lt=1 << 32)]
    license: Text
    gated: bool
    device: Literal["cuda", "cpu", "any"]
    args: list[str] = []
    max_context: Whole | None = None
    min_compute_capability: Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")] | None = None
    weights_bytes: Whole | None = None
    layers: Whole | None = None
    attention_heads: Whole | None = None
    kv_heads: Whole | None = None
    head_dim: Whole | None = None
    kv_value_bytes: Literal[1, 2, 4] = 2
    full_attention_layers: Annotated[int, Field(ge=0)] | None = None
    sliding_window: Whole | None = None
    activation_mib: Whole | None = None

    @field_validator("id")
    @classmethod
    def _lower_case_name(cls, value: str) -> str:
        if not MODEL_ID.fullmatch(value):
            raise ValueError("must be a lower-case org/name of letters, digits, '.', '_' and '-'")
        return value

    @field_validator("repo")
    @classmethod
    def _hub_or_folder(cls, value: str, info: ValidationInfo) -> str:
        folder: Path | None = (info.context or {}).get("folder")
        if value.startswith(("/", "./", "../", "~/")):
            if folder is None:
                raise ValueError("may be a local folder only in a file named with --catalog")
            return str((folder / Path(value).expanduser()).resolve())
        if not HUB_REPO.fullmatch(value):
            raise ValueError("must be a hub repository (owner/name) or a folder that starts with / ./ ../ or ~/")
        return value

    @field_validator("revision")
    @classmethod
    def _plain_revision(cls, value: str) -> str:
        # It becomes one word of the engine's command line.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", value):
            raise ValueError("must be a branch, a tag or a commit")
        return value

    @field_validator("args")
    @classmethod
    def _closed_set(cls, value: list[str]) -> list[str]:
        try:
            return list(checked_args(value))
        except FlagError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _whole_shape(self) -> "RawModel":
        given = [key for key in _SHAPE if getattr(self, key) is not None]
        if given and len(given) < len(_SHAPE):
            missing = ", ".join(key for key in _SHAPE if key not in given)
            raise ValueError(f"{given[0]} is given without {missing}: give all of them or none")
        if self.max_context is not None and self.max_context < self.context:
            raise ValueError(f"max_context {self.max_context} is below context {self.context}")
        if (self.full_attention_layers is None) != (self.sliding_window is None):
            raise ValueError("full_attention_layers and sliding_window belong together")
        if self.layers is not None and (self.full_attention_layers or 0) > self.layers:
            raise ValueError("full_attention_layers is above layers")
        return self

    def architecture(self) -> Architecture | None:
        """The model's shape, or `None` when the file gives none."""
        if (
            self.weights_bytes is None
            or self.layers is None
            or self.attention_heads is None
            or self.kv_heads is None
            or self.head_dim is None
        ):
            return None
        return Architecture(
            weights_bytes=self.weights_bytes,
            layers=self.layers,
            attention_heads=self.attention_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            kv_value_bytes=self.kv_value_bytes,
            full_attention_layers=self.full_attention_layers,
            sliding_window=self.sliding_window,
            activation_bytes=ACTIVATION_BYTES if self.activation_mib is None else self.activation_mib * MIB,
        )

    def capability(self) -> tuple[int, int] | None:
        """`min_compute_capability` as numbers."""
        if self.min_compute_capability is None:
            return None
        major, minor = self.min_compute_capability.split(".")
        return int(major), int(minor)


def parse(text: str, folder: Path | None) -> tuple[list[RawModel], tuple[CatalogFault, ...]]:
    """Read a catalog's text.

    Args:
        text: The file's content.
        folder: Where relative local folders start; `None` forbids local folders.

    Returns:
        The entries in file order, and every fault found. With a fault the entries are not to be used.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        return [], (CatalogFault(int(place[1]) if place else None, None, f"not TOML: {error}"),)
    faults = [CatalogFault(None, None, f"unknown key {key!r} outside [[model]]") for key in document if key != "model"]
    tables = document.get("model")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        return [], (*faults, CatalogFault(None, None, "holds no [[model]] entry"))
    lines = _entry_lines(text, len(tables))
    models: list[RawModel] = []
    first_line: dict[str, int | None] = {}
    for number, (table, line) in enumerate(zip(tables, lines, strict=True), start=1):
        entry = table["id"] if isinstance(table.get("id"), str) and table["id"] else f"number {number}"
        try:
            model = RawModel.model_validate(table, context={"folder": folder})
        except ValidationError as error:
            faults.extend(CatalogFault(line, entry, _reason(detail)) for detail in error.errors())
            continue
        if model.id in first_line:
            before = first_line[model.id]
            faults.append(CatalogFault(line, entry, "duplicate id" + (f", first on line {before}" if before else "")))
        first_line.setdefault(model.id, line)
        models.append(model)
    return models, tuple(faults)


def _entry_lines(text: str, count: int) -> list[int | None]:
    """The line of each `[[model]]` header; unknown for all when they do not match the entries one to one."""
    found = [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if re.match(r"\s*\[\[\s*[\"']?model[\"']?\s*\]\]", line)
    ]
    return list(found) if len(found) == count else [None] * count


def _reason(detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    given = _shown(detail["input"])
    match kind:
        case "extra_forbidden":
            return f"unknown key {key!r}"
        case "missing":
            return f"key {key!r} is missing"
        case "value_error":
            return f"{key}: {context['error']}" if key else str(context["error"])
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"{key} {given} is out of range: {_lower(detail['msg'])}"
        case "literal_error":
            return f"{key} {given} must be {context['expected']}"
        case _:
            return f"{key} {given}: {_lower(detail['msg'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
