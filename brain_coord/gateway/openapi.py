"""The API's description beyond what FastAPI sees by itself: the generating routes, and the one shape of every error."""

from typing import Any, Final

from brain_coord.gateway.dialects import DIALECTS, MESSAGES
from brain_coord.gateway.dialects.base import Dialect
from brain_coord.gateway.errors import CODES

_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"description": f"{', '.join(CODES)}; or the engine's own where it refused the request"},
            },
        },
        "brain": {"type": "object", "description": "the decision, where there was one"},
    },
}
ANTHROPIC_ERROR: Final = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": "string"},
    },
}
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "Any error, with its status; README.md lists the codes.",
        "content": {"application/json": {"schema": _ERROR}},
    }
}
"""For every route: also what FastAPI would call a 422 comes in this shape."""


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of an operation that says what body it takes, for routes that read it themselves."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


GENERATION_BODY: Final = {
    "type": "object",
    "required": ["model"],
    "properties": {"model": {"type": "string", "description": "a name of GET /v1/models, such as brain/auto"}},
    "additionalProperties": True,
}
"""The rest is the form's own, and what README.md lists: `mode`, `privacy`, `region` and so on."""


def generation_paths(security: list[dict[str, list[str]]]) -> dict[str, Any]:
    """The routes that take requests: they are no part of the FastAPI application, for speed."""
    return {path: {"post": _operation(dialect, security)} for path, dialect in DIALECTS.items()}


def _operation(dialect: Dialect, security: list[dict[str, list[str]]]) -> dict[str, Any]:
    answers: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if dialect.streams:
        answers["text/event-stream"] = {"schema": {"type": "string"}}
    theirs = dialect.path.startswith(MESSAGES.path)
    failed = {"application/json": {"schema": ANTHROPIC_ERROR if theirs else _ERROR}}
    return {
        "tags": ["generation"],
        "summary": dialect.path,
        "description": dialect.about,
        **json_body(GENERATION_BODY),
        "responses": {
            "200": {"description": "The form's own answer, with `brain`.", "content": answers},
            "default": {**ERRORS["default"], "content": failed},
        },
        "security": security,
    }
