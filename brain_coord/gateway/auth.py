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


def bearer_of(headers: RequestHeaders) -> str:
    """The key in `Authorization: Bearer` or, as Anthropic's clients send it, `x-api-key`; empty without one."""
    sent = headers.get(b"authorization", b"")
    secret = sent[7:].strip() if sent[:7].lower() == b"bearer " else b""
    return (secret or headers.get(b"x-api-key", b"")).decode("latin-1")


async def authenticate(book: KeyBook, secret: str) -> Caller:
    """The caller with this key.

    Raises:
        ApiError: 401.
    """
    if not secret:
        raise fault("invalid_api_key", "no API key was sent; use `Authorization: Bearer KEY`")
    caller = await book.find(secret)
    if caller is None:
        raise fault("invalid_api_key", "the API key is not valid here, or was revoked")
    return caller
