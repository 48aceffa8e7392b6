"""Checking receipts offline: one envelope, or the lines of an exported chain.

Nothing here needs a store, a network or a clock. The reference canonicaliser is used, not the fast one that sealed.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from brain_coord.receipts.chain import FORMAT, GENESIS, statement
from brain_coord.receipts.merkle import climb
from brain_coord.receipts.signer import key_id_of

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
    """Number of the line or element, from 1."""
    code: str
    message: str
    chain: str | None = None
    seq: int | None = None


@dataclass(slots=True)
class Report:
    """What a verification found."""

    receipts: int = 0
    """Receipts that verified."""
    bad: Finding | None = None
    """The first bad link; `None` when all is good."""
    gaps: int = 0
    """Places where links of the chain are not in the file, as in the export of a single key."""
    signers: set[str] = field(default_factory=set)
    """Key ids that signed."""
    chains: dict[str, Link] = field(default_factory=dict)
    """Last verified link of each chain."""


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
    if not isinstance(chain, str) or type(seq) is not int or seq < 1:
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


def verify_lines(lines: Iterable[str | bytes], trusted: Mapping[str, bytes] | None = None) -> Report:
    """Check receipts and how they follow each other, one JSON object a line; empty lines are skipped."""
    return verify_all((line for line in lines if line.strip()), trusted)


def verify_all(items: Iterable[Any], trusted: Mapping[str, bytes] | None = None) -> Report:
    """Check receipts in the given order, as text or parsed, and stop at the first bad one.

    Links of one chain must come in rising order; where two are neighbours, the later must name the earlier's hash.
    """
    report = Report()
    for number, item in enumerate(items, 1):
        seen: Any = None
        try:
            seen = parse(item) if isinstance(item, (str, bytes)) else item
            link = verify_envelope(seen, trusted)
            _follow(link, report)
        except BadReceipt as bad:
            where = seen if isinstance(seen, dict) else {}
            chain, seq = where.get("chain"), where.get("seq")
            report.bad = Finding(
                number,
                bad.code,
                str(bad),
                chain if isinstance(chain, str) else None,
                seq if type(seq) is int else None,
            )
            return report
        report.chains[link.chain] = link
        report.signers.add(link.signer)
        report.receipts += 1
    return report


def _follow(link: Link, report: Report) -> None:
    before = report.chains.get(link.chain)
    if link.seq == 1 and link.prev != GENESIS.hex():
        raise BadReceipt("broken_link", "the first link of a chain names a predecessor")
    if link.seq == 1 and link.signer != link.chain:
        raise BadReceipt("unknown_signer", f"chain {link.chain} is named after another key than {link.signer}")
    if before is None:
        return
    if link.seq <= before.seq:
        raise BadReceipt("out_of_order", f"link {link.seq} comes after link {before.seq}")
    if link.seq == before.seq + 1:
        if link.prev != before.hash:
            raise BadReceipt("broken_link", f"link {link.seq} does not continue from link {before.seq}")
    else:
        report.gaps += 1


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
