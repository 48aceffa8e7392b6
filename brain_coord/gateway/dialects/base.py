"""What the gateway has to know of an API form, and nothing more: it translates none of them."""

import json
from typing import Any, Final, Protocol

import orjson

from brain_coord.gateway.dialects.forms import Forms
from brain_coord.gateway.dialects.seen import Seen, Usage
from brain_coord.gateway.errors import ApiError

Forwards = tuple[tuple[str, str | None], ...]
"""Names of headers, each with what stands in for it where the client sends none."""


class Dialect(Protocol):
    """One API form."""

    @property
    def path(self) -> str:
        """The route, the same at the engine."""

    @property
    def about(self) -> str:
        """What the route does, in one sentence."""

    @property
    def streams(self) -> bool:
        """Whether the form has streamed answers, which are generated text and have a speed."""

    @property
    def asks_usage(self) -> bool:
        """Whether a stream tells its usage only when `stream_options.include_usage` asks for it."""

    @property
    def id_lines(self) -> bytes:
        """The headers in which the form's clients look for the request's id, as they are written; `%(id)b` stands for it."""

    @property
    def forwards(self) -> Forwards:
        """The client's headers that go on to an upstream, with what stands in for one that is missing; then its query too."""

    @property
    def forms(self) -> Forms | None:
        """What is known of its events by their bytes, where they differ in little but their text."""

    def check(self, body: dict[str, Any]) -> None:
        """Raise `ApiError` for what no engine could answer, or what this API does not do."""

    def read(self, data: bytes) -> Seen:
        """Read the data of one event."""

    def usage_of(self, body: dict[str, Any]) -> Usage | None:
        """The token counts in a whole answer."""

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Bytes of UTF-8 text in a whole answer."""

    def tail(self, events: list[bytes], *, done: bool) -> bytes:
        """The held-back end of a stream as it is sent; adds the end marker of the form if the engine forgot it."""

    def error_body(self, error: ApiError, request_id: str) -> bytes:
        """The JSON body of an error."""

    def error_event(self, error: ApiError, request_id: str) -> bytes:
        """The one event that ends a stream which failed; no end marker follows it, so it never looks complete."""

    def is_error(self, body: dict[str, Any]) -> bool:
        """Whether an engine's error body has this form's shape, and can be passed on as it is."""


COUNTED: Final = 10**8
"""From here on a number counts no tokens: no body holds so many, a receipt none beyond 2^53, and a sum over all requests that
takes one in that is near it no longer moves by one. Forms know no more digits."""


def json_object(data: bytes) -> dict[str, Any] | None:
    """The object that an engine wrote, `None` if it is none.

    It is passed on as it stands, so what most clients can read is good enough: half a character in an escape, as engines
    write it that cut their text anywhere, or a number that is none.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = lenient_json(data)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def lenient_json(data: bytes) -> Any:
    """What most clients can read, if not orjson. Raises `ValueError`."""
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def count(value: Any) -> int | None:
    """A token count, `None` if it is none."""
    return value if type(value) is int and 0 <= value < COUNTED else None


def text_length(value: Any) -> int:
    """Bytes of UTF-8 in a text, 0 for anything else."""
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
