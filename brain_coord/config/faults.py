"""What is wrong with a configuration: which source, which table, which key, and what would be right."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError

Where = tuple[str | int, ...]
"""Where a value stands: table, key, or for upstreams table, number from 0, key."""

NEXT_STEP: Final = (
    "Correct it; `brain-coord check-config` tells whether it is right, config.example.toml documents every key"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        source: `file …`, `environment …` or `flag …`.
        table: as it is written in the file, `[queue]` or `[[cloud]] 1`.
        key: in the table; `None` when the table as a whole is at fault.
        message: what must be, in words.
        allowed: the allowed values, where they are a list.
    """

    source: str
    table: str | None
    key: str | None
    message: str
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = " ".join(part for part in (self.table, self.key) if part)
        return f"{self.source}: {where + ': ' if where else ''}{self.message}"


class ConfigError(Exception):
    """A configuration cannot be used."""

    code = "bad_config"
    next_step = NEXT_STEP

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)

    @property
    def message(self) -> str:
        """One line for each fault."""
        return "\n  ".join(map(str, self.faults))


def faults_of(error: ValidationError, root: type[BaseModel], source_of: Callable[[Where], str]) -> list[Fault]:
    """A validation's complaints in our words."""
    return [_fault(each, root, source_of) for each in error.errors(include_url=False)]


def _fault(each: Any, root: type[BaseModel], source_of: Callable[[Where], str]) -> Fault:
    where: Where = tuple(each["loc"])
    kind, context = each["type"], each.get("ctx") or {}
    table, key = split(where)
    source = source_of(where)
    if kind == "extra_forbidden":
        known = _keys(root, where[:-1])
        near = difflib.get_close_matches(str(where[-1]), known, 1)
        if len(where) == 1:
            table, key = None, None
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else f"the {'keys' if len(where) > 1 else 'tables'} are {', '.join(known)}"
        )
        return Fault(source, table, key, f"there is no `{where[-1]}` here; {hint}", tuple(known))
    if kind == "missing":
        return Fault(source, table, key, "is missing")
    if kind == "value_error":
        return Fault(source, table, key, str(context.get("error", "is not usable")))
    if kind in ("enum", "literal_error"):
        expected = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
        return Fault(source, table, key, f"must be one of {expected}{_is(each)}", tuple(expected.split(", ")))
    return Fault(source, table, key, _bound(kind, context) + _is(each))


_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "path": "a path",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
    "finite": "a finite number",
}
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _bound(kind: str, context: dict[str, Any]) -> str:
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"must be {words} {context[name]:g}"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind == "too_short":
        return "must not be empty"
    return f"must be {_KINDS.get(kind.split('_')[0], 'another value')}"


def _is(each: Any) -> str:
    """The value at fault; short, and never of a place where somebody may have put a key."""
    value = each.get("input")
    plain = isinstance(value, str | int | float | bool) and len(str(value)) <= 60
    return f" (is {value!r})" if plain and not str(each["loc"][-1]).startswith("api_key") else ""


def split(where: Where) -> tuple[str | None, str | None]:
    """`(table, key)` as the file writes them."""
    if not where:
        return None, None
    if len(where) > 1 and isinstance(where[1], int):
        rest = where[2:]
        return f"[[{where[0]}]] {where[1] + 1}", ".".join(map(str, rest)) or None
    if where[0] == "plans" and len(where) > 1:
        return f"[plans.{where[1]}]", ".".join(map(str, where[2:])) or None
    return f"[{where[0]}]", ".".join(map(str, where[1:])) or None


def _keys(root: type[BaseModel], where: Iterable[str | int]) -> list[str]:
    """What may stand in a table."""
    model: Any = root
    for part in where:
        if isinstance(part, int):
            continue
        field = next((each for name, each in model.model_fields.items() if part in (name, each.alias)), None)
        found = None if field is None else _model_in(field.annotation)
        if found is None:
            continue
        model = found
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_in(part))), None)
