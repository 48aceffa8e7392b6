"""Sessions of logged-in operators: random tokens in memory, bound to the secret that opened them. Pure but for the tokens."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from brain_coord.web.operator.secret import OperatorSecret

LIFE_S: Final = 12 * 3600.0
IDLE_S: Final = 3600.0
MOST: Final = 100


@dataclass(slots=True)
class Session:
    """One browser that logged in; times in seconds of the monotonic clock.

    Attributes:
        csrf: stands in every form; a page of another site cannot know it.
    """

    secret_sha256: str
    csrf: str
    began: float
    seen: float

    def good(self, secret: OperatorSecret | None, now: float) -> bool:
        """Whether it still counts: not too old, not idle for too long, and its secret still in force."""
        return (
            secret is not None
            and hmac.compare_digest(self.secret_sha256, secret.sha256)
            and now - self.began < LIFE_S
            and now - self.seen < IDLE_S
        )


@dataclass(slots=True)
class Sessions:
    """Open sessions by the hash of their token."""

    _open: dict[str, Session] = field(default_factory=dict)

    def log_in(self, secret: OperatorSecret | None, text: str, now: float) -> str | None:
        """The token of a new session, `None` for a wrong secret.

        Guesses are not counted: 256 random bits need no such lock, by which anybody could keep the operator out.
        """
        if secret is None or not secret.matches(text):
            return None
        if len(self._open) >= MOST:
            del self._open[min(self._open, key=lambda key: self._open[key].seen)]
        token = secrets.token_urlsafe(32)
        self._open[_key(token)] = Session(secret.sha256, secrets.token_urlsafe(24), now, now)
        return token

    def find(self, token: str | None, secret: OperatorSecret | None, now: float) -> Session | None:
        """The session behind a cookie."""
        session = self._open.get(_key(token)) if token else None
        if session is None:
            return None
        if not session.good(secret, now):
            self.log_out(token)
            return None
        session.seen = now
        return session

    def log_out(self, token: str | None) -> None:
        """End a session."""
        if token:
            self._open.pop(_key(token), None)


def _key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
