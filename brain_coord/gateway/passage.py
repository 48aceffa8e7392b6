"""One streamed answer on its way through: what goes out now, what waits for real output, what waits for the receipt.

No I/O: bytes and the time go in, bytes come out. Every byte that goes out stands as the engine wrote it, in its order;
only the chunk that holds nothing but a usage nobody asked for is left out.
"""

from math import inf
from typing import Final, NamedTuple

from brain_coord.classes.target import TargetFault
from brain_coord.gateway import sse
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.dialects import Dialect, EventKind
from brain_coord.gateway.dialects.seen import Usage
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.mould import Mould
from brain_coord.gateway.reader import Reader

EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest single event of a stream."""

PLAIN_BYTES: Final = 256 * 1024
"""Up to here an event is read whatever is in it."""

HELD_BYTES: Final = EVENT_BYTES
"""Most that is held back, before the first output and after the last; an event that is larger may stand alone.

Before the first output the prompt may come back: as token ids for each choice, or twice in a response's frames.
"""

LINGER_S: Final = 2.0
"""How long a target may take to end a stream whose end marker has come: no client waits for anything behind that."""

_OUTPUT, _QUIET, _FINISH = EventKind.OUTPUT, EventKind.QUIET, EventKind.FINISH
_DONE, _END, _ERROR = EventKind.DONE, EventKind.END, EventKind.ERROR
"""An enum's members are slow to look up, and every event is asked for some of them."""


class Tail(NamedTuple):
    """The end of a stream, held back: events to send, and whether the end marker came."""

    events: list[bytes]
    done: bool


class Passage:
    """Sorts the events of one stream.

    Attributes:
        committed: real output has passed; before that the answer may still come from another target.
        silence_s: the longest pause from now on; `None` before the first output.
    """

    committed = False
    silence_s: float | None = None
    _held_bytes = 0
    _done = False
    _splitter: sse.EventSplitter | None = None
    """Keeps an event that has begun."""
    _alike: Mould | None = None
    """The form of the next events if they are more of the text, and may pass at once: nothing is held, nothing begun."""

    def __init__(self, dialect: Dialect, answer: Answer, *, client_usage: bool, between_s: float = inf) -> None:
        """Args: `between_s` is the longest pause between two events."""
        self._reader = Reader(dialect)
        self._answer = answer
        self._client_usage = client_usage
        self._between_s = between_s
        self._held: list[bytes] = []
        self._ready: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether nothing more can come, although the stream may not have ended."""
        return self._done and (self._answer.finished or self.committed)

    def feed(self, chunk: bytes, now: float) -> bytes:
        """What can go out after these bytes.

        Raises:
            EngineFault: the engine reports an error; what came before it is still there to be taken by `out`.
            TargetFault: it breaks the rules of a stream; likewise.
        """
        alike = self._alike
        if alike is not None:
            if size := alike.alone(chunk):
                self._answer.clock.output(now, size)
                return chunk
            run = alike.run(chunk, 0)
            if run is not None and run[0] == len(chunk):
                self._answer.clock.outputs(now, *run[1:])
                return chunk
            self._alike = None
        was_committed = self.committed
        try:
            if self._splitter is not None or b"\r" in chunk:
                self._split(chunk, now)
            elif (at := self._take_whole(chunk, now)) < len(chunk):
                self._split(chunk[at:], now)
        except (EngineFault, TargetFault):
            if not was_committed:
                self._ready = []  # nothing of it has gone out, so another target may still answer
            raise
        if self.committed and not self._held and self._splitter is None:
            self._alike = self._reader.mould
        return self.out()

    def _take_whole(self, chunk: bytes, now: float) -> int:
        """Take the whole events at the start of what came between two events; returns where the last one ends."""
        at, size, together, reader = 0, len(chunk), True, self._reader
        passed: Mould | None = None
        """A form of which there is nothing more in the chunk."""
        while at < size:
            mould = reader.mould
            if together and mould is not None and mould is not passed:
                run = mould.run(chunk, at)
                if run is not None:
                    end, events, text_bytes, first_text_bytes = run
                    self._answer.clock.outputs(now, events, text_bytes, first_text_bytes)
                    self._release()
                    self._ready.append(chunk[at:end])
                    at, passed = end, mould
                    if (ending := reader.ending(chunk, at)) is not None:
                        self._end_with(*ending)
                        return size
                    continue
                together = False  # each such look goes through all that is left, so there is one in vain at most
            end = chunk.find(b"\n\n", at) + 2
            if end < 2:
                break
            self._take(chunk[at:end], now)
            at = end
        return at

    def _end_with(self, finish: bytes, counts: bytes, usage: Usage, marker: bytes) -> None:
        """Take the three events that end nearly every stream, right behind output."""
        self._answer.usage = self._answer.usage.then(usage)
        self._answer.finished = True
        self._held = [finish, counts, marker] if self._client_usage else [finish, marker]
        self._held_bytes = len(finish) + len(counts)
        self._closes()

    def _split(self, chunk: bytes, now: float) -> None:
        """Take the events that `chunk` completes, and keep the one that it begins."""
        splitter = self._splitter or sse.EventSplitter(EVENT_BYTES)
        try:
            events = splitter.feed(chunk)
        except sse.EventTooLarge as error:
            raise TargetFault("protocol", str(error), ran=True) from None
        self._splitter = None if splitter.at_rest else splitter
        for event in events:
            if len(event) > PLAIN_BYTES and sse.tangled(event):
                raise TargetFault("protocol", "an event of more values or lines than can be read in time", ran=True)
            self._take(event, now)

    def end(self, now: float) -> tuple[bytes, Tail]:
        """The engine has ended its stream: what still goes out, and the end that waits for the receipt.

        Raises:
            EngineFault: the engine reported an error.
            TargetFault: the answer is not whole.
        """
        ready = b""
        if self._splitter is not None:
            rest = self._splitter.end()
            if rest.strip():  # an engine that forgets the last blank line; readers would skip the event
                self._take(rest + b"\n\n", now)
                ready = self.out()
            elif rest:
                self._hold(rest)  # of a line end that was cut
        if not self._answer.finished and not self.whole:
            raise TargetFault("incomplete", "the stream ended without a finish reason", ran=True)
        self._answer.finished = True
        return ready, Tail(self._held, self._done)

    def _take(self, event: bytes, now: float) -> None:
        """Take one event. Raises `EngineFault` for one that reports an error."""
        kind, text_bytes, usage, error = self._reader.read(event)
        if usage is not None:
            self._answer.usage = self._answer.usage.then(usage)
        if kind is _OUTPUT:
            self._answer.clock.output(now, text_bytes)
            self._release()
            self._ready.append(event)
        elif kind is _QUIET:
            if self.committed and not self._held:
                self._ready.append(event)
            else:
                self._hold(event)  # in its place: behind whatever is held
        elif kind is _FINISH or kind is _END:
            if text_bytes or not self.committed:
                self._answer.clock.output(now, text_bytes)
                self._release()
            self._answer.finished = True
            self._hold(event)
            if kind is _END:
                self._closes()
        elif kind is _DONE:
            self._closes()
            self._hold(event)
        elif kind is _ERROR:
            raise EngineFault("the engine reported an error", error=error)
        elif self._client_usage:
            self._hold(event)

    def _closes(self) -> None:
        """The end marker has come."""
        self._done = True
        self._reader.close()
        self.silence_s = LINGER_S

    def _hold(self, event: bytes) -> None:
        self._held_bytes = held_bytes = self._held_bytes + len(event)
        if held_bytes > HELD_BYTES and self._held:
            raise TargetFault("protocol", "the engine sends events without output", ran=True)
        self._held.append(event)

    def _release(self) -> None:
        self.committed, self.silence_s = True, self._between_s
        if self._held:
            self._ready += self._held
            self._held = []
            self._held_bytes = 0
            self._answer.finished = False  # another choice goes on

    def out(self) -> bytes:
        """What is ready to go out."""
        ready = self._ready
        if not ready:
            return b""
        self._ready = []
        return ready[0] if len(ready) == 1 else b"".join(ready)
