"""API keys in memory: a key is looked up on every request, and revoked hardly ever."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import ApiKey
from brain_coord.store.secrets import digest

_MOST_BYTES = 256
_MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey
    fresh_until_s: float


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

    async def find(self, secret: str) -> ApiKey | None:
        """The good key with this text; `None` for an unknown or revoked one.

        Raises:
            StoreUnavailable: the key is not in memory and the database is away. One that is in memory stays good then.
        """
        if len(secret) > _MOST_BYTES:
            return None
        wanted = digest(secret)
        entry = self._entries.get(wanted)
        if entry is not None and self._clock() < entry.fresh_until_s:
            return entry.key
        try:
            key = await self._load(secret)
        except StoreUnavailable:
            if entry is None:
                raise
            key = entry.key
        self._entries.pop(wanted, None)
        if key is None or key.revoked_s is not None:
            return None
        while len(self._entries) >= _MOST_KEYS:
            del self._entries[next(iter(self._entries))]
        self._entries[wanted] = _Entry(key, self._clock() + self._fresh_s)
        return key

    def forget(self) -> None:
        """Ask the database again for every key."""
        self._entries.clear()
