"""Which web pages of other origins may call the API: none, unless the operator names them."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.middleware.cors import CORSMiddleware

READABLE: Final = (
    "x-request-id",
    "x-brain-target",
    "x-brain-node",
    "x-brain-mode",
    "x-brain-receipt",
    "retry-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
)
"""Answer headers that such a page may read."""


def with_cors(app: Any, origins: Sequence[str]) -> Any:
    """The application, which answers pages of these origins (`*` for all) and their preflights."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=list(READABLE),
        max_age=600,
    )
