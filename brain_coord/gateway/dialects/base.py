"""What the gateway has to know of an API form, and nothing more: it translates none of them."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol


class EventKind(Enum):
    """What one event of a streamed answer means to the gateway."""

    PREFACE = auto()  # role only, empty text, a comment: held until real output comes
    OUTPUT = auto()  # text, reasoning, a tool call: commits the answer
    FINISH = auto()  # a choice ended; commits too, and is held until it is known whether more follows
    USAGE = auto()  # token counts alone
    DONE = auto()  # the end marker
    ERROR = auto()  # the engine reports a failure


@dataclass(frozen=True, slots=True)
class Seen:
    """One event as a dialect reads it."""

    kind: EventKind
    text_bytes: int = 0
    usage: dict[str, Any] | None = None
    error: Any = None


class Dialect(Protocol):
    """One API form."""

    @property
    def path(self) -> str:
        """The route, the same at the engine."""

    @property
    def capability(self) -> str:
        """What a target must be able to do, for `brain/auto`."""

    def check(self, body: dict[str, Any]) -> tuple[str, str] | None:
        """`(parameter, sentence)` of the first fault that the gateway itself must name, else `None`."""

    def read(self, data: bytes, *, committed: bool) -> Seen:
        """Read the data of one event; after the commit as little of it as possible."""

    def usage_of(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The token counts in a whole answer."""

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Bytes of UTF-8 text in a whole answer."""
