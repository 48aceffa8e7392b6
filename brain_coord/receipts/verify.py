"""Checking receipts offline: one envelope, or the lines of an exported chain.

Nothing here needs a store, a network or a clock. The reference canonicaliser is used, not the fast one that sealed.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from brain_coord.receipts.chain import FORMAT, GENESIS, statement
from brain_coord.receipts.merkle import climb
from brain_coord.receipts.signer import key_id_of

_KEY_ID = re.compile("[0-9a-f]{16}")
_HASHED = ("body", "chain", "format", "prev", "seq")
_MEMBERS = {*_HASHED, "hash", "path", "public_key", "signature", "signer"}


class BadReceipt(ValueError):  # noqa: N818  (read as a finding: "bad receipt, hash_mismatch")
    """A receipt that does not verify: a stable code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Link:
    """An envelope that verified on its own."""

    chain: str
    seq: int
    hash: str
    prev: str
    signer: str
    receipt_id: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing wrong with a set of receipts."""

    line: int
    """Number of the line, from 1."""
    code: str
    message: str
    chain: str | None = None
    seq: int | None = None


@dataclass(slots=True)
class Verification:
    """A check of receipts one after the other, in the order of their chains (several chains may be mixed)."""

    trusted: Mapping[str, bytes] | None = None
    """Key id → raw public key; with these given, only receipts they signed verify."""
    receipts: int = 0
    """Receipts that verified."""
    gaps: int = 0
    """Places where links of a chain were not among the receipts, as in the export of a single API key."""
    signers: set[str] = field(default_factory=set)
    """Key ids that signed."""
    first: dict[str, Link] = field(default_factory=dict)
    """First link seen of each chain."""
    last: dict[str, Link] = field(default_factory=dict)
    """Last link seen of each chain."""
    bad: Finding | None = None
    """The first bad link that `verify_lines` met; `None` when all is good."""

    def add(self, item: Any) -> Link:
        """Check the next receipt, as text or parsed.

        Raises:
            BadReceipt: it does not verify, or does not follow the ones before.
        """
        link = verify_envelope(parse(item) if isinstance(item, (str, bytes)) else item, self.trusted)
        self._follow(link, self.last.get(link.chain))
        self.first.setdefault(link.chain, link)
        self.last[link.chain] = link
        self.signers.add(link.signer)
        self.receipts += 1
        return link

    def _follow(self, link: Link, before: Link | None) -> None:
        if link.seq == 1 and link.prev != GENESIS.hex():
            raise BadReceipt("broken_link", "the first link of a chain names a predecessor")
        if link.seq == 1 and link.signer != link.chain:
            raise BadReceipt("unknown_signer", f"chain {link.chain} is named after another key than {link.signer}")
        if before is None:
            return
        if link.seq <= before.seq:
            raise BadReceipt("out_of_order", f"link {link.seq} comes after link {before.seq}")
        if link.seq > before.seq + 1:
            self.gaps += 1
        elif link.prev != before.hash:
            raise BadReceipt("broken_link", f"link {link.seq} does not continue from link {before.seq}")


def parse(text: str | bytes) -> Any:
    """JSON without the liberties that would let two readers see two things: no repeated keys, no NaN.

    Raises:
        BadReceipt: `not_json`.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadReceipt("not_json", f"this is not JSON: {error}") from None


def verify_envelope(envelope: Any, trusted: Mapping[str, bytes] | None = None) -> Link:
    """Check one receipt on its own; with `trusted` (key id → raw public key) only those signers count.

    Raises:
        BadReceipt: it does not verify.
    """
    if not isinstance(envelope, dict) or set(envelope) != _MEMBERS:
        raise BadReceipt("malformed", "this is not a receipt: its members are not those of the format")
    chain, seq, prev = envelope["chain"], envelope["seq"], envelope["prev"]
    if envelope["format"] != FORMAT:
        raise BadReceipt("unknown_format", f"the format is not {FORMAT}")
    if not _is_chain(chain) or type(seq) is not int or seq < 1:
        raise BadReceipt("malformed", "the chain or the sequence number is malformed")
    public_key = _from_base64(envelope["public_key"], 32, "public key")
    signature = _from_base64(envelope["signature"], 64, "signature")
    if key_id_of(public_key) != envelope["signer"]:
        raise BadReceipt("signer_mismatch", "the signer's id does not belong to the public key")
    if trusted is not None and trusted.get(envelope["signer"]) != public_key:
        raise BadReceipt("unknown_signer", f"signed by {envelope['signer']}, which is not one of the given keys")
    _from_hex(prev, "previous hash")
    digest = _from_hex(envelope["hash"], "hash")
    try:
        linked = rfc8785.dumps({name: envelope[name] for name in _HASHED})
    except (ValueError, RecursionError) as error:
        raise BadReceipt("malformed", f"the receipt has no canonical form: {error}") from None
    if hashlib.sha256(linked).digest() != digest:
        raise BadReceipt("hash_mismatch", "the hash does not match the content: the receipt was changed")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, statement(_root(digest, envelope["path"])))
    except InvalidSignature:
        raise BadReceipt("bad_signature", "the signature does not verify") from None
    body = envelope["body"]
    receipt_id = body.get("id") if isinstance(body, dict) else None
    return Link(chain, seq, envelope["hash"], prev, envelope["signer"], receipt_id)


def verify_lines(lines: Iterable[str | bytes], trusted: Mapping[str, bytes] | None = None) -> Verification:
    """Check receipts and how they follow each other, one JSON object a line, and stop at the first bad one."""
    found = Verification(trusted)
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.add(line)
            except BadReceipt as bad:
                found.bad = finding(number, line, bad)
                return found
    return found


def finding(line: int, item: Any, bad: BadReceipt) -> Finding:
    """What is wrong with a receipt, and which link of which chain it says it is."""
    try:
        said = parse(item) if isinstance(item, (str, bytes)) else item
    except BadReceipt:
        said = None
    chain, seq = (said.get("chain"), said.get("seq")) if isinstance(said, dict) else (None, None)
    return Finding(
        line,
        bad.code,
        str(bad),
        chain if _is_chain(chain) else None,
        seq if type(seq) is int else None,
    )


def _is_chain(name: Any) -> bool:
    """Whether it can be one: a key id. It is printed beside the verdict, which a name of other characters could paint over."""
    return isinstance(name, str) and _KEY_ID.fullmatch(name) is not None


def _root(digest: bytes, path: Any) -> bytes:
    if not isinstance(path, list):
        raise BadReceipt("malformed", "the path is no list")
    steps = []
    for step in path:
        if not isinstance(step, str) or step[:1] not in ("L", "R"):
            raise BadReceipt("malformed", "a step of the path is malformed")
        steps.append(step[:1].encode() + _from_hex(step[1:], "step of the path"))
    return climb(digest, steps)


def _from_hex(text: Any, name: str) -> bytes:
    # Compared after re-encoding: otherwise a changed letter case would pass unnoticed.
    try:
        value = bytes.fromhex(text)
    except (TypeError, ValueError):
        value = b""
    if len(value) != 32 or value.hex() != text:
        raise BadReceipt("malformed", f"the {name} is no SHA-256 in lower-case hex")
    return value


def _from_base64(text: Any, size: int, name: str) -> bytes:
    # Compared after re-encoding: the last letter of base64 has bits that decoding ignores.
    try:
        value = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        value = b""
    if len(value) != size or base64.b64encode(value).decode() != text:
        raise BadReceipt("malformed", f"the {name} is not {size} bytes in base64")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is repeated")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
