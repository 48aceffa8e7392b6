"""Which keys have signed a chain, and the endorsements that lead from its first key to the newest.

The published history (`GET /v1/signer`, `brain-coord keys list --json`) is
`{"chain": …, "current": …, "keys": [{"key_id", "public_key", "from", "until", "endorsed_by", "endorsement"}, …]}`.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from brain_coord.receipts.body import time_of, timestamp
from brain_coord.receipts.canonical import canonical
from brain_coord.receipts.signer import Signer, key_id_of

_LABEL = b"brain-signer v1\x00"


class HistoryError(ValueError):
    """A published key history does not hold together; the text says where."""


@dataclass(frozen=True, slots=True)
class SignerKey:
    """One public key of a chain."""

    key_id: str
    chain: str
    public_key: bytes
    from_s: float
    """Wall time from which it signs."""
    until_s: float | None
    """Wall time at which the next key took over; `None` for the current key."""
    endorsed_by: str | None
    """Key id of the key before it; `None` for the first."""
    endorsement: bytes | None
    """The earlier key's signature over this key."""


def first_key(signer: Signer, now_s: float) -> SignerKey:
    """The key that begins a chain, which is named after it."""
    return SignerKey(signer.key_id, signer.key_id, signer.public_key, now_s, None, None, None)


def endorse(chain: str, old: Signer, new: Signer, now_s: float) -> SignerKey:
    """The entry by which an old key hands a chain on to a new one."""
    signature = old.sign(_statement(chain, new.public_key, now_s))
    return SignerKey(new.key_id, chain, new.public_key, now_s, None, old.key_id, signature)


def publish(keys: Sequence[SignerKey]) -> dict[str, Any]:
    """The published form of one chain's keys, each behind the one that endorsed it."""
    keys = _in_order(keys)
    return {
        "chain": keys[0].chain,
        "current": keys[-1].key_id,
        "keys": [
            {
                "key_id": key.key_id,
                "public_key": base64.b64encode(key.public_key).decode(),
                "from": timestamp(key.from_s),
                "until": None if key.until_s is None else timestamp(key.until_s),
                "endorsed_by": key.endorsed_by,
                "endorsement": None if key.endorsement is None else base64.b64encode(key.endorsement).decode(),
            }
            for key in keys
        ],
    }


def publish_all(keys: Sequence[SignerKey]) -> list[dict[str, Any]]:
    """The published form of the keys of several chains, one history each."""
    chains = dict.fromkeys(key.chain for key in keys)
    return [publish([key for key in keys if key.chain == chain]) for chain in chains]


def trusted_keys(published: Any) -> dict[str, bytes]:
    """The public keys of a published history by key id, once every endorsement has been checked.

    Raises:
        HistoryError: it is malformed, does not begin with the key the chain is named after, or a key is not endorsed.
    """
    trusted: dict[str, bytes] = {}
    try:
        chain = str(published["chain"])
        for entry in published["keys"]:
            trusted[entry["key_id"]] = _endorsed_key(chain, entry, trusted)
    except HistoryError:
        raise
    except (KeyError, TypeError, ValueError):
        raise HistoryError("this is no key history as GET /v1/signer answers it") from None
    if chain not in trusted:
        raise HistoryError(f"the key that chain {chain} is named after is missing")
    return trusted


def _endorsed_key(chain: str, entry: dict[str, Any], trusted: dict[str, bytes]) -> bytes:
    public_key = base64.b64decode(entry["public_key"], validate=True)
    if key_id_of(public_key) != entry["key_id"]:
        raise HistoryError(f"key {entry['key_id']} does not belong to its public key")
    if entry["key_id"] == chain:
        return public_key
    before = trusted.get(entry["endorsed_by"])
    if before is None:
        raise HistoryError(f"key {entry['key_id']} is endorsed by {entry['endorsed_by']}, which is not in the history")
    said = _statement(chain, public_key, time_of(entry["from"]))
    try:
        Ed25519PublicKey.from_public_bytes(before).verify(base64.b64decode(entry["endorsement"], validate=True), said)
    except InvalidSignature:
        raise HistoryError(f"the endorsement of key {entry['key_id']} does not verify") from None
    return public_key


def _in_order(keys: Sequence[SignerKey]) -> list[SignerKey]:
    # Not by their times: a clock may be set back between two rotations, and readers check each key by those before it.
    waiting, ordered = list(keys), list[SignerKey]()
    while waiting:
        before = {None, *(key.key_id for key in ordered)}
        following = next((key for key in waiting if key.endorsed_by in before), waiting[0])
        waiting.remove(following)
        ordered.append(following)
    return ordered


def _statement(chain: str, public_key: bytes, from_s: float) -> bytes:
    said = {"chain": chain, "from": timestamp(from_s), "public_key": base64.b64encode(public_key).decode()}
    return _LABEL + canonical(said)
