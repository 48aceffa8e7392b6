"""Errors as a person at a browser gets them: a page with a way on, where a program gets JSON."""

from typing import Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.quiet import ErrorPage
from brain_coord.web.render import page

_API: Final = "/v1/"
_HEADINGS: Final = {404: "Not here", 405: "Not like this", 503: "Not now"}


def error_page(base: str) -> ErrorPage:
    """The page for an error; `base` is the path prefix that a proxy in front keeps."""

    def made(request: Request, error: ApiError) -> Response | None:
        path = request.scope["path"]
        if path.startswith(_API) or "text/html" not in request.headers.get("accept", ""):
            return None
        if path in ("", "/") and error.status == 404:  # the address alone, as people type it
            return RedirectResponse(f"{base}/network", 307)
        heading = _HEADINGS.get(error.status, "That did not work")
        reply = page("missing.html", status=error.status, heading=heading, sentence=error.message, base=base, here="")
        reply.headers.update({name.decode(): value.decode() for name, value in error.extra_headers()})
        return reply

    return made
