"""Results that are worth keeping while their inputs come again: a dictionary that never grows beyond a bound."""

from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST: Final = 512


class Bounded(dict[K, V], Generic[K, V]):
    """Begins anew when it is full: inputs that never come again cost no more than their place."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self.most = most

    def keep(self, key: K, value: V) -> V:
        """Remember a result, and give it back."""
        if len(self) >= self.most:
            self.clear()
        self[key] = value
        return value
