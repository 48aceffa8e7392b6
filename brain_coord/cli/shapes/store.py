"""What commands on keys, tokens, chains and the database print. Times are RFC 3339 in UTC."""

from typing import Literal

from pydantic import Field

from brain_coord.cli.shapes.base import Shape


class KeyMade(Shape):
    """A new API key; `key` is shown this once."""

    key: str
    id: str
    plan: Literal["free", "paid"]
    label: str | None


class Key(Shape):
    """One API key."""

    id: str
    prefix: str
    """Its first characters."""
    plan: Literal["free", "paid"]
    label: str | None
    created: str
    revoked: str | None


class Token(Shape):
    """One join token."""

    id: str
    prefix: str
    """Its first characters."""
    operator: bool
    """Whether nodes that join with it are the operator's own hardware."""
    label: str | None
    uses_left: int | None
    """Null for any number."""
    created: str
    expires: str | None
    revoked: str | None


class TokenMade(Token):
    """A new join token; `token` is shown this once."""

    token: str


class Revoked(Shape):
    """It is revoked for good."""

    id: str
    revoked: Literal[True]


class OperatorSecret(Shape):
    """The operator's new secret, shown this once."""

    secret: str


class OperatorRevoked(Shape):
    """Nobody can log in any more."""

    revoked: Literal[True]


class SignerEntry(Shape):
    """The key that signs a chain from now on."""

    chain: str
    key_id: str
    endorsed_by: str | None


class SigningKey(Shape):
    """One public key of a chain; keys and endorsements in base64."""

    key_id: str
    public_key: str
    since: str = Field(alias="from")
    until: str | None
    """Null for the current key."""
    endorsed_by: str | None
    endorsement: str | None


class KeyHistory(Shape):
    """The keys of one chain, oldest first."""

    chain: str
    current: str
    keys: list[SigningKey]


class SchemaChecked(Shape):
    """Whether the database's schema is the newest this version knows; exit code 1 when it is not."""

    current: bool
    found: str
    newest: str


class SchemaUpgraded(Shape):
    """The schema is current now."""

    upgraded: bool
    """Whether there was anything to do."""
    revision: str


class BackedUp(Shape):
    """The copies."""

    folder: str
    files: list[str]


class BrowserModel(Shape):
    """A model for browser tabs; the three figures are null, and `folder` says why, when its file cannot be read."""

    id: str
    stages: int | None
    replicas: int | None
    bytes: int | None
    folder: str


class BrowserModelRemoved(Shape):
    """It is offered no more."""

    id: str
    removed: Literal[True]
