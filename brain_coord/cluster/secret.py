"""What the cluster's shared secret proves: that a message, or a hop with its body, comes from one of its coordinators. Pure.

The secret itself never leaves the process. A hop's proof holds for one receiver, one path, one body, and once.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

MAC_BYTES: Final = 32
FRESH_S: Final = 60.0
"""How old a proof may be."""

LEAST_CHARS: Final = 32
"""Shortest secret; `openssl rand -hex 32` makes one of 64."""


class NotOurs(Exception):  # noqa: N818 — an answer, not a fault
    """The proof is missing, wrong, old, or was used before. The text says which, and nothing of the secret."""


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """The secret that all coordinators of a cluster share."""

    text: str = field(repr=False)

    def _mac(self, label: bytes, data: bytes) -> bytes:
        return hmac.new(self.text.encode(), label + b"\x00" + data, hashlib.sha256).digest()

    @property
    def prefix(self) -> str:
        """What the cluster's names in Redis begin with: two clusters on one Redis do not hear each other."""
        return f"brain:{self._mac(b'prefix', b'').hex()[:12]}:"

    def seal(self, data: bytes) -> bytes:
        """A message that only our coordinators can have made."""
        return self._mac(b"message", data) + data

    def unseal(self, sealed: bytes) -> bytes:
        """The message.

        Raises:
            NotOurs: it was not made with this secret.
        """
        mac, data = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(b"message", data)):
            raise NotOurs("a message that was not made with this cluster's secret")
        return data

    def prove(self, claims: Mapping[str, Any]) -> str:
        """The header that goes with a hop."""
        data = orjson.dumps(claims)
        return f"{base64.b64encode(data).decode()}.{base64.b64encode(self._mac(b'hop', data)).decode()}"

    def proved(self, header: str) -> dict[str, Any]:
        """What a header claims.

        Raises:
            NotOurs: it was not made with this secret.
        """
        text, _, proof = header.partition(".")
        try:
            data, mac = base64.b64decode(text, validate=True), base64.b64decode(proof, validate=True)
        except (ValueError, binascii.Error):
            raise NotOurs("no proof") from None
        if not hmac.compare_digest(mac, self._mac(b"hop", data)):
            raise NotOurs("a proof that was not made with this cluster's secret")
        claims = orjson.loads(data)
        assert isinstance(claims, dict)
        return claims


@dataclass(slots=True)
class Doorkeeper:
    """Lets each hop in once.

    Args:
        secret: of the cluster.
        name: of this coordinator: a proof made for another is worth nothing here.
        run: of this process: nor is one made for an earlier one, which knew what was used before.
    """

    secret: ClusterSecret
    name: str
    run: str
    _seen: dict[str, float] = field(default_factory=dict)

    def admit(self, header: str, path: str, now: float) -> dict[str, Any]:
        """The claims of a hop whose body has still to be compared with `sha256` in them.

        Its age is told on this coordinator's own monotonic clock, which each beat shows to the others: wall clocks that
        differ, or jump, would shut coordinators out.

        Raises:
            NotOurs: it may not come in.
        """
        claims = self.secret.proved(header)
        if claims["to"] != self.name or claims["path"] != path:
            raise NotOurs("a proof for another coordinator or another path")
        if claims.get("run") != self.run or abs(now - claims["at"]) > FRESH_S:
            raise NotOurs("a proof of another time, or for this coordinator before it was started again")
        while self._seen and now - self._seen[next(iter(self._seen))] > 2 * FRESH_S:
            del self._seen[next(iter(self._seen))]
        if claims["nonce"] in self._seen:
            raise NotOurs("a proof that was used before")
        self._seen[claims["nonce"]] = now
        return claims


def same_body(claims: Mapping[str, Any], body: bytes) -> bool:
    """Whether the body is the one that the proof was made for."""
    return hmac.compare_digest(str(claims["sha256"]), hashlib.sha256(body).hexdigest())
