"""What one event of a streamed answer means to the gateway."""

from enum import Enum, auto
from typing import Any, Final, NamedTuple


class EventKind(Enum):
    """What one event of a streamed answer means to the gateway."""

    QUIET = auto()  # role only, empty text, a frame around output: held until real output comes
    OUTPUT = auto()  # text, reasoning, a tool call: commits the answer
    FINISH = auto()  # the answer, or one of its choices, ended; commits too, and is held back with all that follows
    USAGE = auto()  # token counts alone, as asked for by `stream_options`
    END = auto()  # the same of a whole answer in a form without an end marker: nothing follows
    DONE = auto()  # the end marker
    ERROR = auto()  # the engine reports a failure


class Usage(NamedTuple):
    """Token counts as an engine reports them; `None` where it does not say."""

    prompt: int | None = None
    completion: int | None = None

    def then(self, later: "Usage") -> "Usage":
        """Counts are cumulative: the last one wins and nothing is ever summed."""
        if later.prompt is not None and later.completion is not None:
            return later
        return Usage(
            self.prompt if later.prompt is None else later.prompt,
            self.completion if later.completion is None else later.completion,
        )


NO_USAGE: Final = Usage()


class Seen(NamedTuple):  # made for every event of every stream, at half the cost of a frozen dataclass
    """One event as a dialect reads it."""

    kind: EventKind
    text_bytes: int = 0
    usage: Usage | None = None
    error: Any = None


QUIET: Final = Seen(EventKind.QUIET)
FINISH: Final = Seen(EventKind.FINISH)
DONE: Final = Seen(EventKind.DONE)
NOT_JSON: Final = Seen(EventKind.ERROR, error="the engine sent an event that is not a JSON object")
