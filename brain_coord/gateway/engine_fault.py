"""An engine's own error, read out of whatever form it came in."""

from typing import Any, Final

import orjson

BUSY_WORDS: Final = frozenset({"429", "503", "529", "overloaded_error", "rate_limit_error", "rate_limit_exceeded"})
"""Types and codes by which an error under a good status says that there is too much to do just now."""


class EngineFault(Exception):  # noqa: N818
    """The engine itself reported an error, in its status or in an event of its stream.

    Attributes:
        status: of its HTTP answer; `None` for an event.
        body: of its HTTP answer.
        data: that body as a JSON object, `None` if it is none.
        error: what it says under `error`, or the object itself.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body: bytes = b"",
        data: dict[str, Any] | None = None,
        error: Any = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.data = data
        self.error = error

    @property
    def says_busy(self) -> bool:
        """Whether it is no failure of the engine's, which only has too much to do."""
        return not BUSY_WORDS.isdisjoint((self.told("type"), self.told("code")))

    def told(self, name: str) -> str | None:
        """A member of the error that is a text or a number, as text; else `None`."""
        value = self.error.get(name) if isinstance(self.error, dict) else None
        return str(value) if isinstance(value, str | int | float) else None


def engine_error(status: int, body: bytes) -> EngineFault:
    """An engine's error answer, with its message when it has one of the usual forms."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        return EngineFault(f"the engine refused the request (status {status})", status=status, body=body)
    error = data.get("error", data)
    message = error if isinstance(error, str) else error.get("message") if isinstance(error, dict) else None
    if not isinstance(message, str):
        told = data.get("message", data.get("detail"))
        message = told if isinstance(told, str) else f"the engine answered with status {status}"
    return EngineFault(message, status=status, body=body, data=data, error=error)
