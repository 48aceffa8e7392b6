"""The operator's secret: one per data directory, kept as a hash in a file that only its owner can read.

It is 256 random bits, so a plain SHA-256 protects it as well as a slow hash would; a new one ends every session of the
old one at once, also in a running coordinator.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from brain_node.contract.secret_file import write_private

FILE_NAME: Final = "operator.json"
PREFIX: Final = "bo-"


@dataclass(frozen=True, slots=True)
class OperatorSecret:
    """Who may log in, as the file says."""

    sha256: str
    created_s: float

    def matches(self, text: str) -> bool:
        """Whether this is the secret."""
        return hmac.compare_digest(_digest(text), self.sha256)


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()


def create_secret(data_dir: Path, now_s: float) -> str:
    """Make a secret in the place of an earlier one; returns its text, shown now and never again.

    Raises:
        OSError: the folder cannot be written.
    """
    text = PREFIX + secrets.token_urlsafe(32)
    record = orjson.dumps({"sha256": _digest(text), "created_s": now_s}).decode()
    write_private(data_dir / FILE_NAME, f"{record}\n", for_service=True)
    return text


def revoke_secret(data_dir: Path) -> bool:
    """Let nobody log in any more; `False` when nobody could."""
    try:
        (data_dir / FILE_NAME).unlink()
    except FileNotFoundError:
        return False
    return True


def read_secret(data_dir: Path) -> OperatorSecret | None:
    """The secret in force; `None` without one, also when the file cannot be read or is damaged: then nobody gets in."""
    try:
        data = orjson.loads((data_dir / FILE_NAME).read_bytes())
        return OperatorSecret(str(data["sha256"]), float(data["created_s"]))
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
