"""What every viewer of /network sees of this second: one shared frame, and what changed in it as server-sent events.

A frame is a set of HTML fragments by element id, and their order in each list of the page. It is made once a second for
all viewers together, and only while somebody looks; a viewer costs the bytes it is sent and nothing else.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson

from brain_coord.web.render import fragment

PERIOD_S: Final = 1.0
SHARE: Final = 50
"""A frame may take one part in so many of the time: a very large fleet is shown less often instead of being in the way."""

TICKS_KEPT: Final = 30
VIEWERS: Final = 1000
_A_VERSION: Final = re.compile("[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Item:
    """One fragment to be: its element id, its template, and the record it shows."""

    key: str
    template: str
    record: Any


Lists = Mapping[str, Sequence[Item]]


@dataclass(frozen=True, slots=True)
class Frame:
    """The fragments of one moment."""

    version: int = 0
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    html: Mapping[str, str] = field(default_factory=dict)

    def parts(self, name: str) -> str:
        """One list's fragments, as they stand in the page."""
        return "".join(self.html[key] for key in self.order.get(name, ()))


class LiveHub:
    """Makes frames and hands the differences to every viewer."""

    def __init__(self, collect: Callable[[], Awaitable[Lists]], base: str) -> None:
        self._collect = collect
        self._base = base
        self._records: dict[str, Any] = {}
        self._ticks: deque[tuple[int, bytes]] = deque(maxlen=TICKS_KEPT)
        self._changed = asyncio.Event()
        self._making = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._made_at = -PERIOD_S
        self._cost_s = self._last_cost_s = 0.0
        self._boot = secrets.token_hex(4)
        self.frame = Frame()
        self.viewers = 0
        self.closed = False

    async def fresh(self) -> Frame:
        """The frame of this second, for a page that is rendered now; one is made for all who ask at once."""
        async with self._making:
            if monotonic() - self._made_at >= self._period_s:
                await self._make()
        return self.frame

    async def tick(self) -> None:
        """Make the next frame and wake every viewer."""
        async with self._making:
            await self._make()

    async def _make(self) -> None:
        began = monotonic()
        before = self.frame
        html: dict[str, str] = {}
        records: dict[str, Any] = {}
        lists = await self._collect()
        for item in (each for items in lists.values() for each in items):
            records[item.key] = item.record
            known = before.html.get(item.key)
            if known is not None and self._records.get(item.key) == item.record:
                html[item.key] = known
            else:
                html[item.key] = fragment(item.template, key=item.key, row=item.record, base=self._base)
        order = {name: tuple(item.key for item in items) for name, items in lists.items()}
        self.frame = Frame(before.version + 1, order, html)
        self._records = records
        self._ticks.append((self.frame.version, self._event(before)))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._made_at = monotonic()
        # The smaller of the last two: the first frame also compiles the templates.
        cost_s = self._made_at - began
        self._cost_s, self._last_cost_s = min(cost_s, self._last_cost_s), cost_s

    def _event(self, before: Frame | None) -> bytes:
        """The step from one frame to this one as an event; from nothing, the whole frame."""
        frame = self.frame
        told: dict[str, Any] = {"boot": self._boot, "version": frame.version, "next_s": round(self._period_s, 1)}
        if before is None:
            told |= {"order": frame.order, "html": frame.html}
        else:
            if order := {name: keys for name, keys in frame.order.items() if before.order.get(name) != keys}:
                told["order"] = order
            if html := {key: text for key, text in frame.html.items() if before.html.get(key) is not text}:
                told["html"] = html
        return f"id: {self._boot}-{frame.version}\ndata: ".encode() + orjson.dumps(told) + b"\n\n"

    async def run(self) -> None:
        """Make frames while somebody looks; runs for ever."""
        while True:
            if not self.viewers:
                self._wanted.clear()
                await self._wanted.wait()
            await asyncio.sleep(self._period_s)
            await self.tick()

    @property
    def _period_s(self) -> float:
        return max(PERIOD_S, SHARE * self._cost_s)

    @property
    def full(self) -> bool:
        """Whether no further viewer is served; the page then stays as it was rendered."""
        return self.viewers >= VIEWERS

    async def stream(self, seen: str | None) -> AsyncIterator[bytes]:
        """The events for one viewer, from what it has seen (`boot-version`) on. It ends when the coordinator stops."""
        self.viewers += 1
        self._wanted.set()
        try:
            boot, _, number = (seen or "").partition("-")
            version = int(number) if boot == self._boot and _A_VERSION.fullmatch(number) else None
            yield b"retry: 2000\n\n"
            if version == self.frame.version:
                yield self._event(self.frame)  # nothing new, but the page learns at once that it is live
            while not self.closed:
                now = self.frame.version  # more may come while this viewer takes its time
                missed = [] if version is None else [data for at, data in self._ticks if at > version]
                if version is not None and len(missed) == now - version:
                    for data in missed:
                        yield data
                elif now:
                    yield self._event(None)
                version = now
                if now == self.frame.version:
                    await self._changed.wait()
        finally:
            self.viewers -= 1

    @property
    def position(self) -> str:
        """What a page that shows the current frame has seen."""
        return f"{self._boot}-{self.frame.version}"

    def close(self) -> None:
        """End every viewer's stream, so that a stop need not wait for them."""
        self.closed = True
        self._changed.set()
