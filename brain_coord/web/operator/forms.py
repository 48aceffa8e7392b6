"""Forms posted by a page of ours, and nobody else's: bounded, and checked against the session."""

import hmac
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request

from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.http import headers_of, read_body
from brain_coord.gateway.routes.context import context_of
from brain_coord.web.operator.sessions import Session
from brain_node.contract.messages import printable

FORM_BYTES = 16 * 1024


def refused(message: str, status: int = 403) -> ApiError:
    """The request did not come from a page of this coordinator."""
    return ApiError(status, "invalid_request", message)


def from_own_page(request: Request) -> bool:
    """Whether the browser says that the request comes from a page of this very site.

    Browsers send `Origin` with every POST and `Sec-Fetch-Site` with every request; a client that sends neither is no
    browser that could have been led here.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form: texts of one line, which terminals show, nodes are told, and PostgreSQL takes.

    Raises:
        ApiError: it is too large or too slow, or comes from elsewhere.
        ClientGone: it never came whole.
    """
    if not from_own_page(request):
        raise refused("forms are taken from this coordinator's own pages only")
    idle_s = context_of(request).gateway.settings.body_idle_s
    data = await read_body(request.receive, headers_of(request.scope), limit_bytes=FORM_BYTES, idle_s=idle_s)
    return {name: printable(text) for name, text in parse_qsl(data.decode(errors="replace"), keep_blank_values=True)}


def check_csrf(session: Session, form: dict[str, str]) -> None:
    """The form was made for this session.

    Raises:
        ApiError: it was not.
    """
    if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
        raise refused("the form is from another session; reload the page")
