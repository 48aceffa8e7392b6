"""An engine's base address, taken apart once for all the requests that go there."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit


@dataclass(frozen=True, eq=False)
class Origin:
    """Where to connect, and what a request says about it. One object for each address: told apart by identity."""

    host: str
    port: int
    secure: bool
    prefix: str
    """Path in front of every job path."""
    authority: str
    """What stands in the Host header."""


@lru_cache(maxsize=256)
def origin_of(base_url: str) -> Origin:
    """The origin in an engine's base address, which was checked where it was configured."""
    parts = urlsplit(base_url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    usual = 443 if secure else 80
    port = parts.port or usual
    shown = f"[{host}]" if ":" in host else host
    return Origin(host, port, secure, parts.path, shown if port == usual else f"{shown}:{port}")
