"""A view that is worked out when it is first asked for, and then kept in the instance."""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 — used as a decorator, like `property`
    """Like `functools.cached_property` without its lock, which costs more than most of the views here.

    Two threads that ask at the same time may both work it out; the views are pure, so they find the same.
    """

    def __init__(self, view: Callable[..., T]) -> None:
        self._view = view
        self.__doc__ = view.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "once[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | once[T]":
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._view(instance)
        return value
