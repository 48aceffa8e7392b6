"""`brain-coord route --receipt`: decide again from what a receipt holds, and say whether it comes out the same."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import typer

from brain_coord.cli.store_access import USAGE, fail, open_store, print_json
from brain_coord.receipts.files import items_of
from brain_coord.receipts.verify import BadReceipt, parse
from brain_coord.routing.reading import SnapshotError
from brain_coord.routing.replay import Replay, replay
from brain_coord.store.receipt_rows import get_receipt, receipt_ids_like
from brain_node.contract.nearest import did_you_mean

NOT_THE_SAME: Final = 1
"""Exit code: something came out otherwise."""

BAD_DATA: Final = 65
"""Exit code: the file or the receipt does not hold a decision."""


def replay_receipt(data_dir: Path, which: str, as_json: bool) -> None:
    """Recompute the decisions of one receipt (by id, from the store) or of each in a file (`-` is stdin).

    Raises:
        typer.Exit: with 1 when a decision does not come out again, 65 when there is none to recompute.
    """
    found = [(str(_body(envelope).get("id")), _again(envelope)) for envelope in _envelopes(data_dir, which)]
    if as_json:
        answers = [_members(receipt_id, again) for receipt_id, again in found]
        print_json(answers if len(answers) != 1 else answers[0])
    else:
        for receipt_id, again in found:
            typer.echo(_sentence(receipt_id, again))
    if not all(again.same for _, again in found):
        raise typer.Exit(NOT_THE_SAME)


def _envelopes(data_dir: Path, which: str) -> list[Any]:
    path = Path(which)
    if which == "-" or os.sep in which or path.is_file():  # no receipt is called like a path
        try:
            with sys.stdin.buffer if which == "-" else path.open("rb") as file:
                items = [parse(item) if isinstance(item, bytes | str) else item for _, item in items_of(file)]
        except OSError as error:
            fail(
                "unreadable",
                f"cannot read {which}: {error.strerror or error}",
                "Name a file of receipts, or a receipt's id",
                USAGE,
            )
        except BadReceipt as error:
            fail("bad_receipt", f"{which}: {error}", "Export it again: brain-coord receipts show ID", BAD_DATA)
        if not items:
            fail("no_receipts", f"{which} holds no receipt", "Export one: brain-coord receipts show ID", BAD_DATA)
        return items
    with open_store(data_dir, write=False) as connection:
        sealed = get_receipt(connection, which)
        like = receipt_ids_like(connection, which) if sealed is None else []
    if sealed is None:
        hint = did_you_mean(which, like, "See the ids with: brain-coord receipts export")
        fail("no_such_receipt", f"there is no receipt {which} in this store, and no file of that name", hint, USAGE)
    return [sealed.envelope()]


def _body(envelope: Any) -> dict[str, Any]:
    body = envelope.get("body", envelope) if isinstance(envelope, dict) else None
    if not isinstance(body, dict) or not isinstance(body.get("decision"), dict):
        fail("bad_receipt", "this is not a receipt: it holds no decision", "See brain-coord receipts show ID", BAD_DATA)
    return body


def _again(envelope: Any) -> Replay:
    try:
        return replay(_body(envelope)["decision"])
    except SnapshotError as error:
        fail("bad_receipt", f"the recorded decision cannot be read: {error}", "The receipt is damaged", BAD_DATA)


def _members(receipt_id: str, again: Replay) -> dict[str, Any]:
    return {
        "receipt": receipt_id,
        "same": again.same,
        "complete": again.complete,
        "differences": list(again.differences),
    }


def _sentence(receipt_id: str, again: Replay) -> str:
    if not again.same:
        return "\n".join(
            [f"{receipt_id}: the decision does NOT come out again:", *map("  ".__add__, again.differences)]
        )
    how = (
        "every candidate is on the receipt"
        if again.complete
        else "of many candidates, those on the receipt were computed again, against the figures recorded for all"
    )
    return f"{receipt_id}: the same decision comes out again ({how})"
