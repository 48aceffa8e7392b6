"""The signing key of a data directory and its chain in the store: first use, rotation, a new beginning."""

import os
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection

from brain_coord.receipts.history import SignerKey, endorse, first_key
from brain_coord.receipts.signer import KEY_FILE, NEXT_KEY_FILE, Signer, SignerError
from brain_coord.store.receipt_rows import chain_head
from brain_coord.store.signer_keys import add_signer_key, get_signer_key, list_signer_keys


def open_signer(connection: Connection, data_dir: Path, now_s: float, *, embedded: bool) -> tuple[Signer, str]:
    """The signer of a data directory and the name of its chain; the first start makes both.

    Raises:
        SignerError: the key file is damaged, unreadable, or missing although its store (`embedded`) has a chain.
    """
    _finish_rotation(connection, data_dir)
    try:
        signer = Signer.load(data_dir / KEY_FILE)
    except FileNotFoundError:
        if embedded and list_signer_keys(connection):
            raise SignerError(
                "signing_key_missing",
                f"the signing key {data_dir / KEY_FILE} is missing, though this store has receipts signed by it",
                "Restore it from a backup; or run `brain-coord keys new-chain`, which begins a new chain under a new "
                "key and keeps all earlier receipts",
            ) from None
        signer = _new_key(data_dir)
    known = get_signer_key(connection, signer.key_id)
    if known is None:
        known = first_key(signer, now_s)
        add_signer_key(connection, known)
    return signer, known.chain


def rotate(connection: Connection, data_dir: Path, now_s: float) -> SignerKey:
    """Hand the chain on to a new key, endorsed by the current one; a running coordinator takes it up by itself.

    The key file is replaced after the transaction by `finish_rotation`: until the store knows the new key, nothing is signed
    with it. A rotation that was interrupted is completed, not repeated.

    Raises:
        SignerError: the current key cannot be used, or has not begun its chain, which has to begin under the key that it is
            named after (`chain_not_begun`).
    """
    try:
        old = Signer.load(data_dir / KEY_FILE)
    except FileNotFoundError:
        raise SignerError(
            "signing_key_missing", "there is no signing key to rotate", "Start the coordinator once"
        ) from None
    known = get_signer_key(connection, old.key_id)
    if known is None:
        known = first_key(old, now_s)
        add_signer_key(connection, known)
    if not chain_head(connection, known.chain).seq:
        raise SignerError(
            "chain_not_begun",
            f"nothing has been signed with the key of chain {known.chain} yet",
            f"Keep it; or stop the coordinator, delete {data_dir / KEY_FILE}, and run `brain-coord keys new-chain`",
        )
    new = _next_key(data_dir)
    entry = get_signer_key(connection, new.key_id)
    if entry is None:
        entry = endorse(known.chain, old, new, now_s)
        add_signer_key(connection, entry)
    return entry


def finish_rotation(data_dir: Path) -> None:
    """Put the key that `rotate` entered in the store in the place of the old one."""
    with suppress(FileNotFoundError):  # two rotations at once make one key, and the other has put it there
        (data_dir / NEXT_KEY_FILE).replace(data_dir / KEY_FILE)
    _sync_dir(data_dir)


def new_chain(connection: Connection, data_dir: Path, now_s: float) -> SignerKey:
    """Begin a new chain under a new key; earlier receipts stay and verify under their own keys.

    Raises:
        SignerError: `signing_key_exists`, so that a good key is never thrown away.
    """
    if (data_dir / KEY_FILE).exists():
        raise SignerError(
            "signing_key_exists",
            f"there is a signing key in {data_dir / KEY_FILE}",
            "Use `brain-coord keys rotate` to replace a good key; move a damaged file away first",
        )
    entry = first_key(_new_key(data_dir), now_s)
    add_signer_key(connection, entry)
    return entry


def changed_signer(connection: Connection, data_dir: Path, current: Signer, chain: str) -> Signer:
    """The signer to go on with: the one in the key file when the store knows it for this chain, else the current one."""
    try:
        signer = Signer.load(data_dir / KEY_FILE)
    except (SignerError, FileNotFoundError):
        return current
    known = get_signer_key(connection, signer.key_id)
    return signer if known is not None and known.chain == chain else current


def _finish_rotation(connection: Connection, data_dir: Path) -> None:
    try:
        waiting = Signer.load(data_dir / NEXT_KEY_FILE)
    except FileNotFoundError:
        return
    if get_signer_key(connection, waiting.key_id) is not None:
        finish_rotation(data_dir)


def _next_key(data_dir: Path) -> Signer:
    try:
        return Signer.load(data_dir / NEXT_KEY_FILE)
    except FileNotFoundError:
        return _new_key(data_dir, NEXT_KEY_FILE)


def _new_key(data_dir: Path, name: str = KEY_FILE) -> Signer:
    signer = Signer.generate()
    signer.save(data_dir / name)
    _sync_dir(data_dir)
    return signer


def _sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
