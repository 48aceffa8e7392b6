"""API keys in memory: a key is looked up on every request, and revoked hardly ever."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import ApiKey
from brain_coord.store.secrets import digest

_MOST_BYTES = 256
_MOST_KEYS = 10_000
_PATIENCE_S = 0.05
"""How long a request with a known key waits to hear that it still is good."""


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey
    fresh_until_s: float


@dataclass(frozen=True, slots=True)
class _Question:
    """The database is being asked about a key, once for all who want to know."""

    answer: "asyncio.Task[ApiKey | None]"
    since_s: float


class KeyCache:
    """Good keys by the hash of their text; unknown ones are never remembered, so that a new key works at once."""

    def __init__(
        self,
        load: Callable[[str], Awaitable[ApiKey | None]],
        fresh_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: `load` asks the database; after `fresh_s` it is asked again, so a key revoked elsewhere ends by then."""
        self._load = load
        self._fresh_s = fresh_s
        self._clock = clock
        self._entries: dict[bytes, _Entry] = {}
        self._asked: dict[bytes, _Question] = {}

    def known(self, secret: str) -> ApiKey | None:
        """The good key with this text, if the database need not be asked about it."""
        entry = self._entries.get(digest(secret)) if len(secret) <= _MOST_BYTES else None
        return entry.key if entry is not None and self._clock() < entry.fresh_until_s else None

    async def find(self, secret: str) -> ApiKey | None:
        """The good key with this text; `None` for an unknown or revoked one.

        A key in memory stays good while the database is away or slow, and no request waits for it longer than a blink.

        Raises:
            StoreUnavailable: the key is not in memory and the database is away.
        """
        if len(secret) > _MOST_BYTES:
            return None
        wanted = digest(secret)
        entry = self._entries.get(wanted)
        if entry is not None and self._clock() < entry.fresh_until_s:
            return entry.key
        question = self._ask(wanted, secret)
        if entry is not None:
            await asyncio.wait({question.answer}, timeout=max(0.0, question.since_s + _PATIENCE_S - self._clock()))
            if not question.answer.done():
                return entry.key
        return await asyncio.shield(question.answer)

    def forget(self) -> None:
        """Ask the database again for every key."""
        self._entries.clear()
        self._asked.clear()

    def _ask(self, wanted: bytes, secret: str) -> _Question:
        question = self._asked.get(wanted)
        if question is None:
            question = _Question(asyncio.ensure_future(self._answer(wanted, secret)), self._clock())
            self._asked[wanted] = question
            question.answer.add_done_callback(lambda answer: self._answered(wanted, answer))
        return question

    def _answered(self, wanted: bytes, answer: "asyncio.Task[ApiKey | None]") -> None:
        question = self._asked.get(wanted)
        if question is not None and question.answer is answer:
            del self._asked[wanted]
        if not answer.cancelled():
            answer.exception()  # whoever still waits gets it; that nobody does is no fault

    async def _answer(self, wanted: bytes, secret: str) -> ApiKey | None:
        entry = self._entries.get(wanted)
        try:
            key = await self._load(secret)
        except StoreUnavailable:
            if entry is None:
                raise
            key = entry.key
        self._entries.pop(wanted, None)
        if key is None or key.revoked_s is not None:
            return None
        if wanted not in self._asked:  # forgotten while the database was being asked: perhaps for good reason
            return key
        while len(self._entries) >= _MOST_KEYS:
            del self._entries[next(iter(self._entries))]
        self._entries[wanted] = _Entry(key, self._clock() + self._fresh_s)
        return key
