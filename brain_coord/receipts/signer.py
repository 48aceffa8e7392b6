"""The coordinator's signing key: one private file, never silently replaced.

Errors raised: `SignerError`, with a code and the way out.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from brain_node.contract.secret_file import read_private, write_private

KEY_FILE = "signing.key"
NEXT_KEY_FILE = "signing.key.next"
"""A key made by a rotation that has not taken effect yet."""
_HEADER = "brain-coord-signing-key-v1 "


class SignerError(Exception):
    """The signing key cannot be used."""

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(f"{message}. {next_step}")
        self.code = code
        self.message = message
        self.next_step = next_step


def key_id_of(public_key: bytes) -> str:
    """The first 16 hex digits of SHA-256 over a raw public key."""
    return hashlib.sha256(public_key).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Signer:
    """An Ed25519 key pair with its public half at hand."""

    private_key: Ed25519PrivateKey
    public_key: bytes
    """Raw, 32 bytes."""
    key_id: str

    @classmethod
    def of(cls, private_key: Ed25519PrivateKey) -> "Signer":
        """The signer that holds a private key."""
        public_key = private_key.public_key().public_bytes_raw()
        return cls(private_key, public_key, key_id_of(public_key))

    @classmethod
    def generate(cls) -> "Signer":
        """A signer with a new random key."""
        return cls.of(Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature, 64 bytes; about 33 µs, with the GIL held."""
        return self.private_key.sign(message)

    def save(self, path: Path) -> None:
        """Write the key file with mode 0600 from its first instant.

        Raises:
            OSError: the folder cannot be written.
        """
        encoded = base64.b64encode(self.private_key.private_bytes_raw()).decode()
        write_private(path, f"{_HEADER}{encoded}\n", for_service=True)

    @classmethod
    def load(cls, path: Path) -> "Signer":
        """The signer in a key file; permissions that are too loose are tightened.

        Raises:
            FileNotFoundError: there is no such file.
            SignerError: it is not readable (`signing_key_unreadable`) or damaged (`signing_key_damaged`).
        """
        try:
            text, _ = read_private(path)
        except FileNotFoundError:
            raise
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise SignerError(
                "signing_key_unreadable",
                f"cannot read the signing key {path}: {error.strerror or error}",
                "Run as the user who owns the file",
            ) from None
        signer = cls._parse(text.strip())
        if signer is None:
            raise SignerError(
                "signing_key_damaged",
                f"the signing key {path} is damaged",
                "Restore it from a backup; or move it away and run `brain-coord keys new-chain`, which begins a new "
                "chain under a new key and keeps all earlier receipts",
            )
        return signer

    @classmethod
    def _parse(cls, text: str) -> "Signer | None":
        try:
            secret = base64.b64decode(text.removeprefix(_HEADER), validate=True)
            return cls.of(Ed25519PrivateKey.from_private_bytes(secret)) if text.startswith(_HEADER) else None
        except (ValueError, binascii.Error):
            return None
