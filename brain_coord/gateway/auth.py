"""Who asks: API keys, and what a request may do before one is checked."""

from dataclasses import dataclass
from typing import Protocol

from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import RequestHeaders
from brain_coord.routing.vocabulary import Plan


@dataclass(frozen=True, slots=True)
class Caller:
    """The key behind a request."""

    key_id: str | None
    plan: Plan


class KeyBook(Protocol):
    """Looks keys up."""

    def known(self, secret: str) -> Caller | None:
        """Whom a key belongs to, if that need not be asked anywhere."""

    async def find(self, secret: str) -> Caller | None:
        """Whom a key belongs to, `None` if it is not one of this coordinator's or was revoked."""


def bearer_of(headers: RequestHeaders) -> str | None:
    """The key in `Authorization: Bearer` or, as Anthropic's clients send it, `x-api-key`."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    secret = secret.strip()
    if not secret or scheme.lower() != b"bearer":
        secret = headers.get(b"x-api-key", b"")
    return secret.decode("latin-1") or None


async def authenticate(book: KeyBook, headers: RequestHeaders) -> Caller:
    """The caller.

    Raises:
        ApiError: 401.
    """
    secret = bearer_of(headers)
    if secret is None:
        raise fault("invalid_api_key", "no API key was sent; use `Authorization: Bearer KEY`")
    caller = book.known(secret) or await book.find(secret)
    if caller is None:
        raise fault("invalid_api_key", "the API key is not valid here, or was revoked")
    return caller
