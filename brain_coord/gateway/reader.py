"""Reads the events of one stream, by their bytes where such events are known, and else as JSON."""

import re
from typing import Final

from brain_coord.gateway import sse
from brain_coord.gateway.dialects import Dialect
from brain_coord.gateway.dialects.forms import Forms
from brain_coord.gateway.dialects.seen import DONE, FINISH, QUIET, EventKind, Seen, Usage
from brain_coord.gateway.mould import Mould

MOULDS: Final = 4
"""How often a stream may show another form of its events with text; one that always does is read event by event."""

_DONE_EVENT: Final = b"data: [DONE]\n\n"


class Reader:
    """Reads the events of one stream.

    Attributes:
        mould: the form of its events with text, as far as it is known.
    """

    mould: Mould | None = None
    _closed = False
    _start: bytes | None = None
    _engine: bytes | None = None
    _left = MOULDS

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._forms = dialect.forms

    def read(self, event: bytes) -> Seen:
        """What an event means."""
        if self._closed:
            return QUIET
        forms, start = self._forms, self._start
        if forms is not None:
            if start is None or not event.startswith(start):
                if event == _DONE_EVENT:
                    return DONE
                start = self._begin(forms, event)
            if start is not None:
                if (known := forms.meaning(event[len(start) :])) is not None:
                    return known
                if (counts := forms.counts.fullmatch(event, len(start))) is not None:
                    return Seen(EventKind.USAGE, usage=_usage(counts))
            if self.mould is not None and (size := self.mould.alone(event)):
                return Seen(EventKind.OUTPUT, size)
        data = sse.data_of(event)
        if data is None:
            return QUIET  # comments, ids, retry hints: passed on in their place, never tokens
        seen = self._dialect.read(data)
        if forms is not None:
            self._learn(forms, event, seen)
        return seen

    def close(self) -> None:
        """The end marker has come: clients read no further, so what stands behind it means nothing."""
        self._closed, self.mould = True, None

    def ending(self, chunk: bytes, at: int) -> tuple[bytes, bytes, Usage, bytes] | None:
        """The three events that end nearly every stream, if they are all that stands in `chunk` from `at` on.

        They are a finish without text, the token counts, which are told as well, and the end marker.
        """
        if not chunk.endswith(_DONE_EVENT):
            return None
        forms, start = self._forms, self._start
        if forms is None or start is None:
            return None
        parts = chunk[at : -len(_DONE_EVENT)].split(start)
        if len(parts) != 3 or parts[0]:
            return None
        _, finish, counts = parts
        if forms.meaning(finish) is not FINISH or (found := forms.counts.fullmatch(counts)) is None:
            return None
        return start + finish, start + counts, _usage(found), _DONE_EVENT

    def _begin(self, forms: Forms, event: bytes) -> bytes | None:
        """Find the start of this stream's events, and what is known of such events."""
        found = forms.start.match(event)
        if found is None:
            self._start = None
            return None
        self._start, self._engine = start, engine = found[0], found[1]
        if (kept := forms.around_text(engine)) is not None:
            self.mould = Mould(start + kept[0], kept[1])
        return start

    def _learn(self, forms: Forms, event: bytes, seen: Seen) -> None:
        start = self._start
        if seen.kind is not EventKind.OUTPUT:
            if start is not None and seen.usage is None:
                forms.keep(event[len(start) :], seen)
        elif self._left and seen.usage is None:
            self._left -= 1
            mould = Mould.of(event, forms.plain_text, seen.text_bytes)
            self.mould = mould = mould if mould is not None and self._counts(mould, seen.text_bytes + 1) else None
            if mould is not None and start is not None:
                forms.keep_around_text(self._engine, mould.head[len(start) :], mould.tail)

    def _counts(self, mould: Mould, size: int) -> bool:
        """Whether the text at this place is what counts: an event may hold another of the same size elsewhere."""
        data = sse.data_of(mould.with_text(b"." * size))
        return data is not None and self._dialect.read(data) == Seen(EventKind.OUTPUT, size)


def _usage(counts: re.Match[bytes]) -> Usage:
    prompt, completion = counts.groups()
    return Usage(int(prompt), int(completion))
