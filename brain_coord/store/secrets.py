"""API keys and join tokens: made at random, shown once, kept as SHA-256 only.

A plain hash is right here: 256 random bits cannot be guessed, so there is nothing for a slow password hash to protect,
and a key is looked up on every request.
"""

import hashlib
import secrets
from dataclasses import dataclass

_SHOWN = 9


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret just made; this is the only time its text exists outside its owner's hands."""

    text: str
    sha256: bytes
    public_id: str
    """An id that says nothing about the text."""
    prefix: str
    """The first characters, to recognise it by."""


def new_secret(kind: str) -> NewSecret:
    """A new secret of the form `b<kind>-…`; its public id has the form `<kind>-…`."""
    text = f"b{kind}-{secrets.token_urlsafe(32)}"
    return NewSecret(text, digest(text), f"{kind}-{secrets.token_hex(6)}", text[:_SHOWN])


def digest(text: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
