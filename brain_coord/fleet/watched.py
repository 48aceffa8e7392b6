"""Records that tell when they change, so that what was derived from them cannot go stale unnoticed.

A record that derives from `Watched` calls its hook on every assignment to one of its attributes, and its dictionaries and
watched parts report through it. So whoever adds a way to change a node does not have to remember anybody.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

_NOTHING: Final = object()
_set: Final = object.__setattr__
_PLAIN: Final = frozenset({int, float, str, bool, type(None)})
"""What neither holds anything nor tells of it; nearly all that is assigned while requests run."""

Touch = Callable[[], None]


def _nobody() -> None:
    """Watches over a record that stands alone."""


class Watched:
    """A record with a hook on every assignment.

    Attributes:
        unwatched: attributes that nothing is derived from. A name missing here costs time, never a wrong answer.
    """

    __slots__ = ("_touch",)

    unwatched: ClassVar[frozenset[str]] = frozenset()
    _touch: Touch

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """A record that nobody watches yet."""
        record = super().__new__(cls)
        _set(record, "_touch", _nobody)
        return record

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.unwatched:
            _set(self, name, value)
            return
        kind = type(value)
        if kind not in _PLAIN:
            if kind is dict:
                value = WatchedDict(value, self.touched)
            elif isinstance(value, Watched):
                value.watch(self.touched)
        before = getattr(self, name, _NOTHING)
        _set(self, name, value)
        if before is not value and not (kind is float and before == value):
            self._touch()

    def watch(self, touch: Touch) -> None:
        """Call this on every change from now on, in place of an earlier one."""
        _set(self, "_touch", touch)

    def touched(self) -> None:
        """Something about it changed."""
        self._touch()


class WatchedDict(dict[Any, Any]):
    """A dictionary that tells when its contents change."""

    __slots__ = ("_touch",)

    def __init__(self, items: Mapping[Any, Any], touch: Touch) -> None:
        super().__init__(items)
        self._touch = touch

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        return dict, (dict(self),)  # a copy is a plain one: it belongs to nobody

    def __setitem__(self, key: Any, value: Any) -> None:
        before = self.get(key, _NOTHING)
        super().__setitem__(key, value)
        if before is not value and not (type(value) is float and before == value):  # worked out anew, and the same
            self._touch()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._touch()

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]  # whatever a dictionary takes
        self.update(other)
        return self

    def pop(self, *arguments: Any) -> Any:
        """As for any dictionary."""
        found = super().pop(*arguments)
        self._touch()
        return found

    def popitem(self) -> tuple[Any, Any]:
        """As for any dictionary."""
        found = super().popitem()
        self._touch()
        return found

    def clear(self) -> None:
        """As for any dictionary."""
        super().clear()
        self._touch()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As for any dictionary."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *arguments: Any, **items: Any) -> None:
        """As for any dictionary."""
        super().update(*arguments, **items)
        self._touch()
