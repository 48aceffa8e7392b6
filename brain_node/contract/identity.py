"""A node's identity: an Ed25519 key file, the node id made from it, and proofs bound to one challenge.

Errors raised: `IdentityError` for a key file that is damaged or not readable. It is never replaced silently: a new key
is a new node, and would lose the reliability the old one earned.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from brain_node.contract.secret_file import read_private, write_private

_HELLO_LABEL = b"brain-node hello v1\x00"
_HEADER = "brain-node-key-v1 "


class IdentityError(Exception):
    """The key file cannot be used; the text says why and what to do."""


def node_id_of(public_key: bytes) -> str:
    """`N-` and the first 16 hex digits (upper case) of SHA-256 over the raw public key."""
    return "N-" + hashlib.sha256(public_key).hexdigest()[:16].upper()


def hello_digest(hello: dict[str, Any]) -> bytes:
    """SHA-256 over the hello without its proof, in a form both ends derive from the parsed JSON.

    Keys are sorted, so the digest does not depend on the order in which a JSON library writes them.
    """
    rest = {key: value for key, value in hello.items() if key != "proof"}
    return hashlib.sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)).digest()


def _statement(coordinator_key: str, nonce: str, hello: dict[str, Any]) -> bytes:
    return b"\x00".join((_HELLO_LABEL, coordinator_key.encode(), nonce.encode(), hello_digest(hello)))


@dataclass(frozen=True, slots=True)
class Identity:
    """The key pair of one node."""

    key: Ed25519PrivateKey

    @property
    def public_key(self) -> bytes:
        """The raw public key, 32 bytes."""
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def node_id(self) -> str:
        """The id under which coordinators know this node."""
        return node_id_of(self.public_key)

    def prove(self, coordinator_key: str, nonce: str, hello: dict[str, Any]) -> str:
        """The proof for a hello (its JSON object, with or without `proof`) against one challenge, in base64."""
        return base64.b64encode(self.key.sign(_statement(coordinator_key, nonce, hello))).decode()

    def export(self) -> str:
        """The private key as one line of text; treat it as a password."""
        return _HEADER + base64.b64encode(self.key.private_bytes_raw()).decode() + "\n"

    @classmethod
    def generate(cls) -> "Identity":
        """A new random identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """The identity in an exported line.

        Raises:
            IdentityError: the text is not an exported identity.
        """
        head, _, encoded = text.strip().partition(" ")
        try:
            key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(encoded, validate=True))
        except (ValueError, binascii.Error):
            key = None
        if key is None or head + " " != _HEADER:
            raise IdentityError("this is not an exported node identity (one line that starts with `brain-node-key-v1`)")
        return cls(key)


def verify_hello(hello: dict[str, Any], coordinator_key: str, nonce: str) -> str | None:
    """Why a hello (its parsed JSON object) does not prove its node id, or `None` when it does."""
    try:
        public_key = base64.b64decode(hello["public_key"], validate=True)
        proof = base64.b64decode(hello["proof"], validate=True)
        verifier = Ed25519PublicKey.from_public_bytes(public_key)
    except (KeyError, TypeError, ValueError):
        return "the public key or the proof is malformed"
    if node_id_of(public_key) != hello.get("node_id"):
        return "the node id does not belong to the public key"
    try:
        verifier.verify(proof, _statement(coordinator_key, nonce, hello))
    except InvalidSignature:
        return "the proof does not verify against this coordinator's challenge"
    return None


def load_identity(path: Path) -> Identity:
    """The identity in a key file; loose permissions are tightened.

    Raises:
        FileNotFoundError: there is no such file.
        IdentityError: it is not readable or damaged.
    """
    try:
        text, _ = read_private(path)
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise IdentityError(f"cannot read the key file {path}: {reason}") from None
    try:
        return Identity.parse(text)
    except IdentityError:
        raise IdentityError(
            f"the key file {path} is damaged. Restore it from a backup (`brain-node identity import FILE`), or move it "
            "away to start as a new node with a new id and no history."
        ) from None


def load_or_create_identity(path: Path) -> Identity:
    """The identity in a key file, made at the first call.

    Raises:
        IdentityError: a file is there but not readable or damaged.
    """
    try:
        return load_identity(path)
    except FileNotFoundError:
        identity = Identity.generate()
        write_private(path, identity.export())
        return identity
