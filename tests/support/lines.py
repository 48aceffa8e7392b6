"""A coordinator's end of a job: it keeps what was sent."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class Head:
    status: int
    content_type: str
    retry_after: str | None


@dataclass
class RecordedLine:
    kinds: list[str] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    answer: Head | None = None
    cause: str | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def accepted(self) -> None:
        self.kinds.append("accepted")

    def head(self, status: int, content_type: str, retry_after: str | None) -> None:
        self.kinds.append("head")
        self.answer = Head(status, content_type, retry_after)

    def data(self, data: bytes) -> None:
        self.kinds.append("bytes")
        self.pieces.append(data)

    def flush(self) -> None:
        """Everything is kept at once here."""

    def end(self, cause: str | None) -> None:
        assert not self.over.is_set(), "a job ends once"
        self.kinds.append("end")
        self.cause = cause
        self.over.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def ok(self) -> bool:
        return self.over.is_set() and self.cause is None

    async def ended(self) -> "RecordedLine":
        """The same line, once its job is over."""
        async with asyncio.timeout(30):
            await self.over.wait()
        return self
