"""Which web pages of other origins may call the API: none, unless the operator names them."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

from brain_coord.gateway.http import connection_of, lines_of

READABLE: Final = (
    "x-request-id",
    "request-id",
    "x-brain-target",
    "x-brain-node",
    "x-brain-mode",
    "x-brain-receipt",
    "retry-after",
    "x-should-retry",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
)
"""Answer headers that such a page may read."""


class _Cors(CORSMiddleware):
    """Starlette's rules. Their headers go with the head of the answer, whoever writes it: the hot routes send no events."""

    async def simple_response(self, scope: Scope, receive: Receive, send: Send, request_headers: Headers) -> None:
        """Any answer but that to a preflight."""
        start: Message = {"type": "http.response.start", "headers": []}
        await self.send(start, _to_nobody, request_headers)
        connection_of(scope).more_lines = lines_of(start["headers"])
        await self.app(scope, receive, send)


async def _to_nobody(message: Message) -> None:
    """Only what Starlette puts into the message is wanted."""


def with_cors(app: Any, origins: Sequence[str]) -> Any:
    """The application, which answers pages of these origins (`*` for all) and their preflights."""
    if not origins:
        return app
    return _Cors(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=list(READABLE),
        max_age=600,
    )
