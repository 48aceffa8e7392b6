"""Errors as clients see them: one shape, stable codes, no paths and no tracebacks."""

from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(slots=True)
class ApiError(Exception):
    """An error for the client, in OpenAI's shape; other API forms wrap it in `gateway.dialects`."""

    status: int
    code: str
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    retry_after_s: int | None = None
    brain: dict[str, Any] | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """The JSON object that the client gets."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error} if self.brain is None else {"error": error, "brain": self.brain}

    def encode(self) -> bytes:
        """The body as bytes."""
        return orjson.dumps(self.body())

    def extra_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that go with it."""
        extra = list(self.headers)
        if self.retry_after_s is not None:
            extra.append((b"retry-after", str(self.retry_after_s).encode()))
        if self.status == 401:
            extra.append((b"www-authenticate", b"Bearer"))
        return extra


CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is not a JSON object."),
    "missing_field": (400, "A field without which no engine could answer is missing."),
    "invalid_field": (400, "A field has a value that is not allowed."),
    "invalid_request": (400, "The request is not HTTP, or a route cannot take it as it is."),
    "privacy_conflict": (400, "The privacy level and the model contradict each other; see ROUTING.md."),
    "unsupported_state": (400, "Stored responses need state on one engine, which this API does not keep."),
    "engine_refused": (
        400,
        "The engine refused the request; status and message are its own, and the code where it sends one.",
    ),
    "invalid_api_key": (401, "No key, or not one of this coordinator's. Create one with `brain-coord key create`."),
    "model_not_found": (404, "No class offers this model; the nearest names are in the message."),
    "not_found": (404, "No such route or object, or nothing that serves the model offers this route."),
    "method_not_allowed": (405, "The route exists, with another method."),
    "request_timeout": (408, "The request's body stopped coming."),
    "body_too_large": (413, "The body is larger than the limit that the message names."),
    "unsupported_encoding": (415, "The body is compressed; send it as it is."),
    "head_too_large": (431, "The request line and headers are larger than the limit that the message names."),
    "rate_limited": (
        429,
        "The key's requests per minute or at a time are used up, or all that serves the model is busy; see Retry-After.",
    ),
    "queue_full": (429, "Too many requests wait for a free slot; see Retry-After."),
    "engine_error": (502, "The target failed with an error of its own."),
    "target_failed": (502, "Every target that could be tried failed before the first output."),
    "no_capacity": (503, "Nothing can serve the request right now; the message says why for each node."),
    "draining": (503, "The coordinator is shutting down; try again shortly."),
    "bodies_full": (
        503,
        "Large requests use up the memory set aside for bodies; see Retry-After. Small ones go through.",
    ),
    "too_many_connections": (503, "The coordinator has as many open connections as it allows; see Retry-After."),
    "store_unavailable": (
        503,
        "The store is away: a key, a receipt or this request needs it. Nothing was changed; see Retry-After.",
    ),
    "deadline": (504, "The request's deadline passed before an answer."),
    "incomplete": (502, "The answer broke off after it had begun; what was sent stands, nothing else follows."),
    "receipt_damaged": (500, "The receipt cannot be read any more; its place in the chain is in the message."),
    "internal": (500, "A fault of the coordinator; its log has the request id."),
}
"""Every code: HTTP status and meaning."""


def fault(code: str, message: str, **more: Any) -> ApiError:
    """An error with the status that belongs to its code."""
    status, _ = CODES[code]
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    return ApiError(status=status, code=code, message=message, type=kind, **more)


def draining() -> ApiError:
    """For whoever comes, or is still here, when the coordinator stops."""
    return fault("draining", "the coordinator is shutting down; try again shortly", retry_after_s=2)
