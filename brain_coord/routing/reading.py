"""Typed reads from parsed JSON, where every failure names its path."""

import json
from collections.abc import Iterator
from enum import StrEnum
from math import inf, isfinite, nan
from typing import Any, Final, TypeGuard, TypeVar

Choice = TypeVar("Choice", bound=StrEnum)

MAX_COUNT: Final = 2**53 - 1
"""The largest integer that canonical JSON can carry."""


class SnapshotError(ValueError):
    """A snapshot that cannot be read.

    Attributes:
        path: the JSON path of the fault, such as `$.nodes[3].rtt_ms`.
        problem: what is wrong there, in words.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class Part:
    """One JSON object and its path; members are read once each, and null is the same as absent."""

    __slots__ = ("_read", "_value", "path")

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise SnapshotError(path, f"must be an object, not {shown(value)}")
        self._value: dict[str, Any] = value
        self._read: set[str] = set()
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def at(self, name: str) -> str:
        """The path of a member."""
        return f"{self.path}.{name}" if name.isidentifier() else f"{self.path}[{json.dumps(name, ensure_ascii=False)}]"

    def unread(self) -> list[str]:
        """Paths of members that nobody asked for: most likely misspelt."""
        return [self.at(name) for name in self._value if name in self and name not in self._read]

    def _member(self, name: str) -> Any:
        self._read.add(name)
        return self._value.get(name)

    def fault(self, name: str, wanted: str) -> SnapshotError:
        """The error that a member is not what it should be."""
        return SnapshotError(self.at(name), f"must be {wanted}, not {shown(self._value.get(name))}")

    def raw(self, name: str) -> Any:
        """A member as it stands."""
        return self._member(name)

    def text(self, name: str) -> str | None:
        """A string that is not empty."""
        value = self._member(name)
        if value is None or (_is_text(value) and value):
            return value
        raise self.fault(name, "a non-empty string")

    def required_text(self, name: str) -> str:
        """The same, and it must be there."""
        value = self.text(name)
        if value is None:
            raise SnapshotError(self.at(name), "is required")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        value = self._member(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self.fault(name, "true or false")

    def number(self, name: str, at_most: float = inf) -> float | None:
        """A finite number of at least 0; the words NaN and Infinity are none."""
        value = self._member(name)
        if value is None:
            return None
        number = _as_float(value)
        if isfinite(number) and 0 <= number <= at_most:
            return number + 0.0  # turns -0.0 into 0.0
        raise self.fault(
            name, f"a number from 0 to {at_most:g}" if isfinite(at_most) else "a finite number of at least 0"
        )

    def count(self, name: str) -> int | None:
        """A whole number of at least 0."""
        value = self._member(name)
        if value is None:
            return None
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole or not 0 <= value <= MAX_COUNT:
            raise self.fault(name, "a whole number from 0 to 2^53 - 1")
        return int(value)

    def required_count(self, name: str) -> int:
        """The same, and it must be there."""
        value = self.count(name)
        if value is None:
            raise SnapshotError(self.at(name), "is required")
        return value

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """One of the words of a vocabulary."""
        value = self._member(name)
        if value is None:
            return None
        if isinstance(value, str) and value in kind.__members__.values():
            return kind(value)
        raise self.fault(name, "one of " + ", ".join(kind))

    def texts(self, name: str) -> frozenset[str]:
        """A list of strings, as a set."""
        values = self._list(name)
        for index, value in enumerate(values):
            if not _is_text(value):
                raise SnapshotError(f"{self.at(name)}[{index}]", f"must be a string, not {shown(value)}")
        return frozenset(values)

    def numbers(self, name: str) -> dict[str, float | None]:
        """An object of numbers as `number` reads them; null stays unknown."""
        if name not in self:
            self._read.add(name)
            return {}
        inner = self.part(name)
        return {key: inner.number(key) for key in inner._value}

    def part(self, name: str) -> "Part":
        """An object inside this one; an absent one reads as empty."""
        value = self._member(name)
        return Part({} if value is None else value, self.at(name))

    def parts(self, name: str) -> Iterator["Part"]:
        """A list of objects."""
        return (Part(value, f"{self.at(name)}[{index}]") for index, value in enumerate(self._list(name)))

    def _list(self, name: str) -> list[Any]:
        value = self._member(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fault(name, "a list")
        return value


def _as_float(value: Any) -> float:
    """NaN for what is no number; infinity for a whole number that is too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _is_text(value: Any) -> TypeGuard[str]:
    """A string that can be written again: JSON may spell half a surrogate pair, UTF-8 cannot."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def shown(value: Any) -> str:
    """A value as an error may quote it: as JSON, and never long."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"
