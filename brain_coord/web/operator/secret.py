"""The operator's secret: one per data directory, kept as a hash in a file that only its owner can read.

It is 256 random bits, so a plain SHA-256 protects it as well as a slow hash would; a new one ends every session of the
old one at once, also in a running coordinator.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

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
    """Make a secret in the place of an earlier one; returns its text, shown now and never again."""
    text = PREFIX + secrets.token_urlsafe(32)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, part = data_dir / FILE_NAME, data_dir / f".{FILE_NAME}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if os.geteuid() == 0:
            # Made by root for a service that runs as somebody else: it must be able to read it.
            owner = data_dir.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        file.write(orjson.dumps({"sha256": _digest(text), "created_s": now_s}) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
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
