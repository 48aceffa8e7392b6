"""`brain-coord receipts prune`: delete old receipts and leave chains that still verify."""

import base64
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from brain_coord.cli.receipt_filters import require_chain
from brain_coord.cli.store_access import AsJson, DataDir, open_store, print_json
from brain_coord.cli.times import seconds_of
from brain_coord.receipts.body import timestamp
from brain_coord.receipts.merkle import steps_of
from brain_coord.receipts.signer import key_id_of
from brain_coord.store.receipt_rows import chains, get_checkpoint, prune_receipts
from brain_coord.store.records import Checkpoint

AT_ONCE: Final = 1000
"""Links of one transaction: a coordinator that runs on the same database must not wait for long."""


def prune(
    data_dir: DataDir,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Delete receipts of requests that came longer ago, such as 90d.")
    ],
    chain: Annotated[
        str | None, typer.Option(metavar="CHAIN", help="Only receipts of this chain; all chains otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete old receipts from the start of their chain. What is kept verifies: it goes on from a hash that was signed."""
    before_s = time.time() - seconds_of(older_than)
    with open_store(data_dir, write=False) as connection:
        require_chain(connection, chain)
        names = [name for name in chains(connection) if chain in (None, name)]
    done = [_prune_chain(data_dir, name, before_s) for name in names]
    if as_json:
        print_json({"before": timestamp(before_s), "chains": done})
        return
    for each in done:
        goes_on = "" if each["checkpoint"] is None else f"; it goes on from link {each['checkpoint']['seq']}"
        typer.echo(f"chain {each['chain']}: {each['pruned']} receipts deleted{goes_on}")
    if not done:
        typer.echo("no receipts yet", err=True)


def _prune_chain(data_dir: Path, chain: str, before_s: float) -> dict[str, Any]:
    step = partial(prune_receipts, chain=chain, before_s=before_s, now_s=time.time(), most=AT_ONCE)
    gone = 0
    while True:
        with open_store(data_dir, write=True) as connection:
            count = step(connection)
        if not count:
            break
        gone += count
    with open_store(data_dir, write=False) as connection:
        point = get_checkpoint(connection, chain)
    return {"chain": chain, "pruned": gone, "checkpoint": None if point is None else _members(point)}


def _members(point: Checkpoint) -> dict[str, Any]:
    """Whoever kept the last deleted receipt finds its hash and signature here."""
    return {
        "seq": point.seq,
        "hash": point.hash.hex(),
        "prev": point.prev.hex(),
        "path": [f"{chr(step[0])}{step[1:].hex()}" for step in steps_of(point.path)],
        "signer": key_id_of(point.public_key),
        "public_key": base64.b64encode(point.public_key).decode(),
        "signature": base64.b64encode(point.signature).decode(),
        "pruned": timestamp(point.pruned_s),
    }
