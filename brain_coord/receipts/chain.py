"""Sealing: a body gets its place in the chain, its hash, and its share of a signature."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from brain_coord.receipts.body import ReceiptDraft, time_of
from brain_coord.receipts.canonical import canonical
from brain_coord.receipts.merkle import grow, steps_of
from brain_coord.receipts.signer import Signer, key_id_of

FORMAT = "brain-receipt-1"
GENESIS = bytes(32)
"""What the first link of a chain has in place of a predecessor's hash."""
_PIECE = 2047
_LABEL = b"brain-receipt v1\x00"


class DamagedReceipt(ValueError):  # noqa: N818  (a finding, as `BadReceipt`)
    """What was kept of a receipt is no JSON any more; the text says of which."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where a chain ends: the next link continues from here."""

    chain: str
    """Name of the chain: the key id of its first signer."""
    seq: int = 0
    """Number of the last link, 0 for none."""
    hash: bytes = GENESIS
    """Hash of the last link."""


class Sealed(NamedTuple):
    """A receipt in its place. The fields before `hash` are what the hash covers."""

    body: bytes
    """Canonical JSON of the body."""
    chain: str
    seq: int
    prev: bytes
    hash: bytes
    path: bytes
    """Steps from the hash to the signed root, 33 bytes each."""
    public_key: bytes
    """Raw Ed25519 key of the signer."""
    signature: bytes

    @property
    def head(self) -> ChainHead:
        """The chain's end after this link."""
        return ChainHead(self.chain, self.seq, self.hash)

    @property
    def signer(self) -> str:
        """Key id of the signer."""
        return key_id_of(self.public_key)

    def unsealed(self) -> "Unsealed":
        """The receipt as it was before."""
        body = orjson.loads(self.body)
        return Unsealed(self.body, body["id"], body["key"], body["node"], time_of(body["time"]))

    def line(self) -> bytes:
        """The envelope as canonical JSON, without a newline."""
        path = b",".join(b'"%c%s"' % (step[0], step[1:].hex().encode()) for step in steps_of(self.path))
        return (
            b'{"body":%s,"chain":"%s","format":"%s","hash":"%s","path":[%s],"prev":"%s","public_key":"%s","seq":%d,"signature":"%s","signer":"%s"}'
            % (
                self.body,
                self.chain.encode(),
                FORMAT.encode(),
                self.hash.hex().encode(),
                path,
                self.prev.hex().encode(),
                base64.b64encode(self.public_key),
                self.seq,
                base64.b64encode(self.signature),
                self.signer.encode(),
            )
        )

    @classmethod
    def parse(cls, line: bytes) -> "Sealed":
        """A receipt from the line of its envelope; its hash is checked, its signature is not.

        Raises:
            ValueError: it is no envelope, or not the one that was written.
        """
        members = orjson.loads(line)
        try:
            sealed = cls(
                body=canonical(members["body"]),
                chain=members["chain"],
                seq=members["seq"],
                prev=bytes.fromhex(members["prev"]),
                hash=bytes.fromhex(members["hash"]),
                path=b"".join(step[0].encode() + bytes.fromhex(step[1:]) for step in members["path"]),
                public_key=base64.b64decode(members["public_key"]),
                signature=base64.b64decode(members["signature"]),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not an envelope: {error!r}") from None
        if sealed.line() != line or sealed.hash != sealed.computed_hash():
            raise ValueError("the envelope was changed")
        return sealed

    def computed_hash(self) -> bytes:
        """SHA-256 of what the hash covers."""
        return _sha256(link_bytes(self.body, self.chain, self.prev, self.seq))

    def envelope(self) -> dict[str, Any]:
        """The envelope as JSON values, in the order people read it.

        Raises:
            DamagedReceipt: it cannot be read.
        """
        try:
            members = orjson.loads(self.line())
        except orjson.JSONDecodeError:
            raise DamagedReceipt(f"link {self.seq} of chain {self.chain} is damaged") from None
        order = ("format", "chain", "seq", "prev", "hash", "body", "path", "signer", "public_key", "signature")
        return {name: members[name] for name in order}


class Unsealed(NamedTuple):
    """A receipt before it has its place in a chain. What follows its body are the members that a store looks it up by."""

    body: bytes
    """Canonical JSON."""
    receipt_id: str
    key_id: str | None
    node_id: str | None
    created_s: float

    @classmethod
    def of(cls, draft: ReceiptDraft) -> "Unsealed":
        """The receipt of a draft.

        Raises:
            CanonicalError: the draft holds something that is not JSON.
        """
        return cls(draft.canonical(), draft.receipt_id, draft.key_id, draft.node_id, draft.time_s)


def link_bytes(body: bytes, chain: str, prev: bytes, seq: int) -> bytes:
    """Canonical JSON of what a link's hash covers; the members stand in sorted order already."""
    return b'{"body":%s,"chain":"%s","format":"%s","prev":"%s","seq":%d}' % (
        body,
        chain.encode(),
        FORMAT.encode(),
        prev.hex().encode(),
        seq,
    )


def _sha256(data: bytes) -> bytes:
    """The hash, worked out without a pause.

    From 2 KiB on hashlib lets go of the GIL, and to get it back from a busy event loop takes far longer than the hash.
    """
    hashed = hashlib.sha256(data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        hashed.update(data[start : start + _PIECE])
    return hashed.digest()


def statement(root: bytes) -> bytes:
    """What the signer signs for one commit."""
    return _LABEL + root


def seal(head: ChainHead, bodies: Sequence[bytes], signer: Signer) -> list[Sealed]:
    """Append canonical bodies to a chain, in order, under one signature."""
    prev, links = head.hash, []
    for seq, body in enumerate(bodies, head.seq + 1):
        digest = _sha256(link_bytes(body, head.chain, prev, seq))
        links.append((body, seq, prev, digest))
        prev = digest
    if not links:
        return []
    root, paths = grow([link[3] for link in links])
    signature = signer.sign(statement(root))
    return [
        Sealed(body, head.chain, seq, prev, digest, path, signer.public_key, signature)
        for (body, seq, prev, digest), path in zip(links, paths, strict=True)
    ]
