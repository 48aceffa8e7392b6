"""A thread that cuts off database calls which outlast their limit."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from sqlalchemy import Connection

from brain_coord.store.database import aborter


class Watchdog:
    """Watches calls of other threads; started with the first one it watches."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._calls: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = count()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="store-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watch(self, connection: Connection) -> Iterator[None]:
        """Make what happens on `connection` within the block fail when it takes longer than the limit."""
        number = next(self._numbers)
        self._calls[number] = (time.monotonic() + self._limit_s, aborter(connection))
        try:
            yield
        finally:
            self._calls.pop(number, None)

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit_s / 4):
            now = time.monotonic()
            for deadline, abort in list(self._calls.values()):
                if deadline < now:
                    abort()
