"""Lets joins through a few at a time, so that a fleet that comes back at once does not stand between requests and the loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 4
"""Steps of joins in one pass of the event loop. A join costs more than a millisecond, a request needs about a dozen passes."""


class Turnstile:
    """In order of arrival, `at_once` in each pass of the loop; without a crowd nobody waits.

    Args:
        at_once: how many pass together.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._passed = 0
        self._turning = False
        self._waiting: deque[asyncio.Future[None] | Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def enter(self) -> None:
        """Returns when it is this one's turn."""
        if not self._free():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def call(self, step: Callable[[], None]) -> None:
        """Call `step` when it is its turn: at once without a crowd. It must not raise."""
        if self._free():
            step()
        else:
            self._waiting.append(step)

    def _free(self) -> bool:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._passed >= self._at_once or self._waiting:
            return False
        self._passed += 1
        return True

    def _turn(self) -> None:
        """The next pass of the loop."""
        self._passed = 0
        while self._waiting and self._passed < self._at_once:
            turn = self._waiting.popleft()
            if not isinstance(turn, asyncio.Future):
                self._passed += 1
                turn()
            elif not turn.done():  # one who gave up takes nobody's place
                self._passed += 1
                turn.set_result(None)
        self._turning = self._passed > 0
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)
