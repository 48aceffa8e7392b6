"""The wire messages of the node protocol, as frozen records with their limits.

Every message is one JSON object in one text frame, told apart by `type`. Unknown fields are ignored, unknown types
decode to `None`. Malformed messages raise `MessageError`; nothing in this module does I/O.

What a node says about itself arrives through *claims*: fields of type `Claimed…` never fail a message. A value that is
not finite, negative, mistyped or absurd becomes `None` and its path is appended to the `refused` list given to `decode`,
so that one NaN from a driver cannot end a link, and cannot enter an average either (RFC 8259, section 6).
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from brain_node.contract.limits import (
    ID_CHARS,
    LEAST_FRAME_BYTES,
    MAX_MODELS,
    MAX_SLOTS,
    MOST_BODY_BYTES,
    MOST_FRAME_BYTES,
    TOKEN_CHARS,
)


class MessageError(ValueError):
    """A frame that is not a message of this protocol; the text says which field is wrong and why."""


T = TypeVar("T")


def _claim(check: Callable[[Any], T | None]) -> BeforeValidator:
    """A validator that turns an unusable claim into `None` and records its path."""

    def validate(value: Any, info: ValidationInfo) -> T | None:
        if value is None:
            return None
        accepted = check(value)
        if accepted is None and info.context is not None:
            info.context.append(info.field_name or "?")
        return accepted

    return BeforeValidator(validate)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None  # nor is NaN between them


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 4 * ID_CHARS and value.isprintable() else None


def printable(text: str) -> str:
    """Text from the other end as it may be shown: one line, and nothing in it that a terminal would obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def _readable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


ClaimedNumber = Annotated[float | None, _claim(_number)]
ClaimedInteger = Annotated[int | None, _claim(_integer)]
ClaimedText = Annotated[str | None, _claim(_text)]

NodeId = Annotated[str, Field(pattern=r"^N-[0-9A-F]{16}$")]
Readable = Annotated[str, BeforeValidator(_readable)]
"""What a coordinator says in words: shown on terminals and written to logs, so it is made printable as it comes in."""

ModelId = Annotated[str, Field(min_length=1, max_length=3 * ID_CHARS, pattern=r"^[!-~]+$")]
JobId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
Base64 = Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z0-9+/_=-]*$")]
Seconds = Annotated[float, Field(ge=0, le=7 * 86400, allow_inf_nan=False)]


class Wire(BaseModel):
    """Base of everything on the wire: frozen, unknown fields ignored, no coercion between JSON types."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Message(Wire):
    """A wire object that stands alone in a frame."""

    TYPE: ClassVar[str]


class GpuClaim(Wire):
    """One card as the node reports it; sizes in bytes, `None` when the driver does not say."""

    name: ClaimedText = None
    uuid: ClaimedText = None
    kind: Literal["discrete", "mig", "unified"] = "discrete"
    state: Literal["ok", "lost", "unsupported"] = "ok"
    total_bytes: ClaimedInteger = None
    free_bytes: ClaimedInteger = None
    utilization_percent: ClaimedNumber = None
    temperature_c: ClaimedNumber = None
    power_w: ClaimedNumber = None


class Report(Wire):
    """Hardware and software as the node claims them; it can only ever exclude a node from a job."""

    os: ClaimedText = None
    driver: ClaimedText = None
    cuda: ClaimedText = None
    engine: ClaimedText = None
    engine_version: ClaimedText = None
    cpu_count: ClaimedInteger = None
    ram_bytes: ClaimedInteger = None
    vram_mib: ClaimedInteger = None
    gpus: Annotated[tuple[GpuClaim, ...], Field(max_length=64, strict=False)] = ()


class ModelOffer(Wire):
    """One model that the node serves or could load."""

    id: ModelId
    loaded: bool = False
    context: ClaimedInteger = None
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = 1


class Offer(Wire):
    """What the node would do for the coordinator: models, slots, region, ask in USD per million tokens."""

    models: Annotated[tuple[ModelOffer, ...], Field(max_length=MAX_MODELS, strict=False)] = ()
    slots: Annotated[int, Field(ge=0, le=MAX_SLOTS)] = 1
    region: ClaimedText = None
    ask_usd_per_1m: ClaimedNumber = None


class EngineClaim(Wire):
    """One engine as the node sees it, for display and for telling the coordinator what is loaded."""

    model: ModelId
    state: Literal["downloading", "starting", "ready", "stalled", "stopping", "failed", "backing_off"]
    elapsed_s: ClaimedNumber = None
    cause: ClaimedText = None
    progress: ClaimedNumber = None


class Refusal(Wire):
    """A model in an offer that the coordinator will not route to this node, and why."""

    model: Readable
    reason: Readable


class Limits(Wire):
    """Limits in force at the coordinator."""

    body_bytes: Annotated[int, Field(gt=0, le=MOST_BODY_BYTES)]
    frame_bytes: Annotated[int, Field(ge=LEAST_FRAME_BYTES, le=MOST_FRAME_BYTES)]
    spare_slots: Annotated[int, Field(ge=0)]


# --- link: coordinator to node ---------------------------------------------------------------------------------------


class Challenge(Message):
    """First message on a link: what the hello has to prove itself against."""

    TYPE: ClassVar[str] = "challenge"
    protocol: int
    coordinator_key: Base64
    nonce: Base64
    server_time: ClaimedNumber = None


class Welcome(Message):
    """The hello was accepted; the session begins."""

    TYPE: ClassVar[str] = "welcome"
    session: JobId
    heartbeat_s: Seconds
    ping_s: Seconds
    slot_ticket: Annotated[str, Field(max_length=256)]
    accepted: Annotated[tuple[Readable, ...], Field(strict=False)] = ()
    refused: Annotated[tuple[Refusal, ...], Field(strict=False)] = ()
    limits: Limits


class Refused(Message):
    """The hello was not accepted; the coordinator closes after it."""

    TYPE: ClassVar[str] = "refused"
    code: Annotated[Readable, Field(max_length=64)]
    message: Annotated[Readable, Field(max_length=1024)]
    retry: bool
    retry_after_s: Seconds | None = None


class Ping(Message):
    """RTT probe; the node answers `pong` with the same number at once."""

    TYPE: ClassVar[str] = "ping"
    n: int


class Drain(Message):
    """Take no new jobs and finish running ones within the deadline."""

    TYPE: ClassVar[str] = "drain"
    deadline_s: Seconds


class Notice(Message):
    """Something the operator of the node should know, for example why it was skipped."""

    TYPE: ClassVar[str] = "notice"
    code: Annotated[Readable, Field(max_length=64)]
    message: Annotated[Readable, Field(max_length=4096)]
    data: dict[str, Any] | None = None


class OpenSlots(Message):
    """Ask for `n` more slot connections now."""

    TYPE: ClassVar[str] = "open_slots"
    n: Annotated[int, Field(ge=1, le=MAX_SLOTS)]


# --- link: node to coordinator ---------------------------------------------------------------------------------------


class Hello(Message):
    """Who the node is, the proof of it, what it has and what it offers."""

    TYPE: ClassVar[str] = "hello"
    protocol: int
    node_id: NodeId
    public_key: Base64
    proof: Base64
    agent_version: ClaimedText = None
    token: Annotated[str, Field(max_length=TOKEN_CHARS)] | None = None
    report: Report
    offer: Offer


class OfferChanged(Message):
    """The offer as it is from now on."""

    TYPE: ClassVar[str] = "offer"
    offer: Offer
    report: Report | None = None


class Heartbeat(Message):
    """The node is alive; telemetry is a claim."""

    TYPE: ClassVar[str] = "heartbeat"
    telemetry: Annotated[tuple[GpuClaim, ...], Field(max_length=64, strict=False)] = ()
    engines: Annotated[tuple[EngineClaim, ...], Field(max_length=MAX_MODELS, strict=False)] = ()
    active: ClaimedInteger = None
    draining: bool = False


class Pong(Message):
    """The answer to `ping`."""

    TYPE: ClassVar[str] = "pong"
    n: int


# --- slot ------------------------------------------------------------------------------------------------------------


class Job(Message):
    """One request; `body_bytes` of binary frames follow."""

    TYPE: ClassVar[str] = "job"
    id: JobId
    model: ModelId
    path: Annotated[str, Field(pattern=r"^/v1/[a-z0-9/_-]{1,64}$")]
    deadline_s: Seconds
    body_bytes: Annotated[int, Field(ge=0)]


class Cancel(Message):
    """End the job now; the node closes the engine's connection and answers `end`."""

    TYPE: ClassVar[str] = "cancel"
    id: JobId


class Accepted(Message):
    """The node has the whole body and will run the job once."""

    TYPE: ClassVar[str] = "accepted"
    id: JobId


class Head(Message):
    """The engine's status line and what of its headers matters."""

    TYPE: ClassVar[str] = "head"
    id: JobId
    status: Annotated[int, Field(ge=100, le=599)]
    content_type: Annotated[str, Field(max_length=256)] = "application/json"
    retry_after: Annotated[str, Field(max_length=64)] | None = None


class End(Message):
    """The job is over and the connection idle again. `cause` is one of `EndCause` when not ok."""

    TYPE: ClassVar[str] = "end"
    id: JobId
    ok: bool
    cause: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] | None = None


EndCause = Literal[
    "no_engine",  # the model is not served here now; the job was not run
    "draining",  # the node takes no new jobs; the job was not run
    "busy",  # every slot the node offers is in use; the job was not run
    "bad_job",  # the job frame or its body broke the protocol
    "engine_refused",  # the engine's port refused the connection; the job was not run
    "engine_lost",  # the engine's connection broke after the request was sent
    "timeout",  # the engine was silent past the job's deadline
    "cancelled",  # the coordinator asked for it
]
"""Why a job did not end well, in the words of the node."""

NOT_RUN: Final[frozenset[str]] = frozenset({"no_engine", "draining", "busy", "bad_job", "engine_refused"})
"""End causes after which the coordinator may give the job to another node without running it twice."""

LINK_TO_NODE: Final[tuple[type[Message], ...]] = (Challenge, Welcome, Refused, Ping, Drain, Notice, OpenSlots)
LINK_TO_COORDINATOR: Final[tuple[type[Message], ...]] = (Hello, OfferChanged, Heartbeat, Pong)
SLOT_TO_NODE: Final[tuple[type[Message], ...]] = (Job, Cancel)
SLOT_TO_COORDINATOR: Final[tuple[type[Message], ...]] = (Accepted, Head, End)

_BY_TYPE: Final = {
    message.TYPE: message for message in (*LINK_TO_NODE, *LINK_TO_COORDINATOR, *SLOT_TO_NODE, *SLOT_TO_COORDINATOR)
}


def encode(message: Message) -> str:
    """The message as one JSON text; absent optional fields are left out."""
    body = message.model_dump(mode="json", exclude_none=True)
    return orjson.dumps({"type": message.TYPE, **body}).decode()


def decode(frame: str | bytes, refused: list[str] | None = None) -> Message | None:
    """The message in a text frame, or `None` for a type this version does not know.

    Args:
        frame: the text of one frame.
        refused: if given, the names of claimed fields whose values were dropped are appended.

    Raises:
        MessageError: the frame is not JSON, has no type, or a field that is not a claim is wrong.
    """
    try:
        data = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        raise MessageError(f"not JSON: {error}") from None
    name = data.get("type") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise MessageError("not an object with a `type`")
    kind = _BY_TYPE.get(name)
    if kind is None:
        return None
    try:
        # As `model_validate` does, which asks three more questions first.
        message: Message = kind.__pydantic_validator__.validate_python(data, context=[] if refused is None else refused)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MessageError(f"{kind.TYPE}: {where}: {first['msg']}") from None
    return message
