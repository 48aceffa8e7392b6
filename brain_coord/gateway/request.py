"""A client's request: parsed, checked, and turned into the bytes that an engine gets.

The engine gets the body as it came except for the documented changes: our own fields are taken out, a streamed request
asks for usage, and `model` names what the target calls it. Members go and come as whole pieces of bytes; whatever else
the client wrote (numbers, escapes, fields that only the engine knows) is never written anew.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from brain_coord.gateway.dialects import Dialect
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.http import RequestHeaders
from brain_coord.gateway.json_members import append, members, rewrite, with_only
from brain_coord.routing.vocabulary import Mode, Privacy

OWN_FIELDS: Final = (
    "mode",
    "privacy",
    "region",
    "require_region",
    "max_cost_usd",
    "max_latency_ms",
    "max_ask_usd_per_1m",
    "node",
)
"""Request members that are ours; each also as a header `x-brain-…` with dashes. The body has precedence."""

_OWN: Final = frozenset(OWN_FIELDS)
_HEADERS: Final = {name: b"x-brain-" + name.replace("_", "-").encode() for name in OWN_FIELDS}
_OWN_HEADERS: Final = frozenset(_HEADERS.values())

LARGE_BYTES: Final = 512 * 1024
"""A body above this is not parsed as a whole, and not on the event loop."""

LARGE_VALUE_BYTES: Final = 64 * 1024
_STAND_INS: Final[dict[bytes, Any]] = {b"[": [None], b"{": {"": None}, b'"': "…"}

MODEL_CHARS: Final = 256
"""Longest model name that is looked up."""


class RoutingWishes(NamedTuple):
    """What the client wants of the routers."""

    mode: Mode = Mode.AUTO
    privacy: Privacy | None = None
    region: str | None = None
    require_region: bool = False
    max_cost_usd: float | None = None
    max_latency_ms: float | None = None
    max_ask_usd_per_1m: float | None = None
    node: str | None = None


class ApiRequest(NamedTuple):  # made for every request, at a tenth of the cost of a frozen dataclass
    """One request, as the gateway goes on with it.

    Attributes:
        request_id: ours, also in `x-request-id`.
        model: as the client named it.
        stream: whether the answer is to be streamed.
        client_usage: whether the client asked for the usage chunk itself.
        body: what goes to the engine.
        sha256: of the body as the client sent it, in hex.
        max_output_tokens: the limit that the client set, `None` without one.
        client_retry: whether the client says that it repeats a request which failed.
        forwarded: headers of the client's for an upstream of the same form.
        query: of the client's address, likewise.
    """

    request_id: str
    dialect: Dialect
    model: str
    stream: bool
    client_usage: bool
    wishes: RoutingWishes
    body: bytes
    sha256: str
    max_output_tokens: int | None = None
    client_retry: bool = False
    forwarded: tuple[tuple[str, str], ...] = ()
    query: str = ""

    def body_for(self, model: str, *, several: bool = False) -> bytes:
        """What goes to a target that knows the model by this name.

        Args:
            model: its name there.
            several: the target may have models that are not offered here, and must see no other name.

        Raises:
            ApiError: 400, where the body has too many members for one of them to be changed.
        """
        if model == self.model and not several:
            return self.body
        try:
            return with_only(self.body, "model", model)
        except ValueError as error:
            raise _unchangeable(error) from None


def parse_request(
    request_id: str, dialect: Dialect, raw: bytes, headers: RequestHeaders, query: bytes = b""
) -> ApiRequest:
    """The request in a body.

    Args:
        request_id: the id it will have everywhere.
        dialect: the form of its route.
        raw: the body as it came.
        headers: by lower-case name.
        query: of the address.

    Raises:
        ApiError: 400, naming the field at fault.
    """
    try:
        body = orjson.loads(raw) if len(raw) <= LARGE_BYTES else _outline(raw)
    except ValueError as error:
        raise fault("invalid_json", f"the body is not JSON: {error}") from None
    if type(body) is not dict:
        raise fault("invalid_json", "the body must be a JSON object")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise fault("missing_field", "`model` is missing, or no name; GET /v1/models lists the names", param="model")
    if len(model) > MODEL_CHARS:
        raise fault("invalid_field", f"`model` is longer than {MODEL_CHARS} characters", param="model")
    dialect.check(body)
    stream = body.get("stream", False)
    if stream is not None and not isinstance(stream, bool):
        raise fault("invalid_field", "`stream` must be true or false", param="stream")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise fault("invalid_field", "`stream_options` must be an object", param="stream_options")
    streamed = stream is True and dialect.streams
    client_usage = False if options is None else options.get("include_usage") or False
    if type(client_usage) is not bool:  # engines read "off" as a no, and then nobody would know what was used
        name = "stream_options.include_usage"
        raise fault("invalid_field", f"`{name}` must be true or false", param=name)
    try:
        engine_body = _engine_body(raw, body, add_usage=streamed and dialect.asks_usage and not client_usage)
    except ValueError as error:
        raise _unchangeable(error) from None
    return ApiRequest(
        request_id=request_id,
        dialect=dialect,
        model=model,
        stream=streamed,
        client_usage=client_usage or not dialect.asks_usage,
        wishes=_wishes(body, headers),
        body=engine_body,
        sha256=hashlib.sha256(raw).hexdigest(),
        max_output_tokens=_output_limit(body),
        client_retry=headers.get(b"x-stainless-retry-count", b"0") != b"0",
        forwarded=_forwarded(dialect, headers) if dialect.forwards else (),
        query=query.decode("latin-1") if dialect.forwards else "",
    )


def _forwarded(dialect: Dialect, headers: RequestHeaders) -> tuple[tuple[str, str], ...]:
    given = ((name, headers.get(name.encode(), b"").decode("latin-1") or missing) for name, missing in dialect.forwards)
    return tuple((name, value) for name, value in given if value is not None)


def _output_limit(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if name in body:
            value = body[name]
            if type(value) is int and value >= 0:
                return value
    return None


def _outline(raw: bytes) -> dict[str, Any]:
    """The members of a large body; a value too large to be one of ours stands in as a short one, and is the engine's to read."""
    return {
        each.name: _STAND_INS.get(raw[each.value : each.value + 1])
        if each.end - each.value > LARGE_VALUE_BYTES
        else orjson.loads(raw[each.value : each.end])
        for each in members(raw)
    }


def _engine_body(raw: bytes, body: dict[str, Any], *, add_usage: bool) -> bytes:
    out: set[str] = set() if _OWN.isdisjoint(body) else {name for name in OWN_FIELDS if name in body}
    if not add_usage:
        return rewrite(raw, without=out) if out else raw
    if "stream_options" in body:
        return rewrite(raw, without=out | {"stream_options"}, add=(b'"stream_options":' + _asking_options(raw),))
    return rewrite(raw, without=out, add=(_ASKS_USAGE,)) if out else append(raw, _ASKS_USAGE)


def _asking_options(raw: bytes) -> bytes:
    """The client's stream options with the usage asked for; as everywhere, the last of several counts."""
    at = [each for each in members(raw) if each.name == "stream_options"][-1]
    given = raw[at.value : at.end]
    if given == b"null":
        return b"{" + _INCLUDE_USAGE + b"}"
    return rewrite(given, without=("include_usage",), add=(_INCLUDE_USAGE,))


def _unchangeable(error: ValueError) -> ApiError:
    return fault("invalid_json", f"the body cannot be passed on: {error}")


_INCLUDE_USAGE: Final = b'"include_usage":true'
_ASKS_USAGE: Final = b'"stream_options":{%b}' % _INCLUDE_USAGE


def _wishes(body: dict[str, Any], headers: RequestHeaders) -> RoutingWishes:
    if _OWN.isdisjoint(body) and _OWN_HEADERS.isdisjoint(headers):
        return _NO_WISHES
    given: dict[str, Any] = {}
    for name in OWN_FIELDS:
        if (value := body.get(name)) is not None:
            given[name] = value
        elif text := headers.get(_HEADERS[name]):
            given[name] = text.decode("latin-1")
    if not given:
        return _NO_WISHES
    return RoutingWishes(
        mode=_choice(Mode, given, "mode") or Mode.AUTO,
        privacy=_choice(Privacy, given, "privacy"),
        region=_text(given, "region"),
        require_region=_flag(given, "require_region"),
        max_cost_usd=_limit(given, "max_cost_usd"),
        max_latency_ms=_limit(given, "max_latency_ms"),
        max_ask_usd_per_1m=_limit(given, "max_ask_usd_per_1m"),
        node=_text(given, "node"),
    )


_NO_WISHES: Final = RoutingWishes()


def _wrong(name: str, what: str) -> ApiError:
    return fault("invalid_field", f"`{name}` must be {what}", param=name)


def _choice(kind: Any, given: dict[str, Any], name: str) -> Any:
    value = given.get(name)
    if value is None:
        return None
    try:
        return kind(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise _wrong(name, "one of " + ", ".join(member.value for member in kind)) from None


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    # It is told in sentences, and those are read on terminals: nothing in it may be a command to one.
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= 128 or not value.isprintable()):
        raise _wrong(name, "a text of at most 128 printable characters")
    return value


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "1", "false", "0"):
        return value.lower() in ("true", "1")
    raise _wrong(name, "true or false")


def _limit(given: dict[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _wrong(name, "a finite number of at least 0")
    return float(value)
