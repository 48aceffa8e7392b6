"""`brain-coord receipts`: check receipts offline, export, show and prune them."""

import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TextIO

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text
from sqlalchemy import Connection

from brain_coord.cli.prune import prune
from brain_coord.cli.receipt_filters import require_chain, require_key
from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, open_store, print_json
from brain_coord.cli.times import moment_of
from brain_coord.receipts.chain import Sealed
from brain_coord.receipts.columns import csv_head, csv_row
from brain_coord.receipts.files import items_of
from brain_coord.receipts.history import HistoryError, trusted_keys
from brain_coord.receipts.signer import key_id_of
from brain_coord.receipts.verify import BadReceipt, Finding, Verification, finding
from brain_coord.store.receipt_rows import get_receipt, page_of_receipts, receipt_ids_like
from brain_node.contract.nearest import did_you_mean

receipts_app = typer.Typer(no_args_is_help=True, help="Check, export, show and prune receipts.")
receipts_app.command("prune")(prune)

BAD = 1
"""Exit code of `verify`: a receipt does not verify."""


@receipts_app.command("verify")
def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Receipts as JSON lines or JSON; - is stdin.")],
    data_dir: DataDir,
    signer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key history to trust: what GET /v1/signer answers, in a file.")
    ] = None,
    public_key: Annotated[str | None, typer.Option(metavar="BASE64", help="Public key to trust.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check receipts offline, in the given order. Exit code 0: all good; 1: names the first bad one; 2: usage."""
    del data_dir  # every command takes it; what is checked here stands in the files alone
    trusted = _trusted(signer, public_key)
    found = Verification(trusted)
    for path in files:
        bad = _check(path, found, quiet=as_json)
        if bad is not None:
            _say_bad(path, bad, found, as_json)
            raise typer.Exit(BAD)
    if not found.receipts:
        fail(
            "no_receipts", "there are no receipts in what was given", "Export some: brain-coord receipts export", USAGE
        )
    _say_good(found, as_json)


@receipts_app.command("export")
def export(
    data_dir: DataDir,
    key: Annotated[str | None, typer.Option(metavar="ID", help="Only receipts of this API key.")] = None,
    chain: Annotated[str | None, typer.Option(metavar="CHAIN", help="Only receipts of this chain.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From this time on (ISO 8601, UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Before this time (ISO 8601, UTC).")] = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="JSON lines (verifiable) or CSV.")
    ] = "jsonl",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write, a new one with mode 0600; - or nothing is stdout."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write receipts in the order of their chain. JSON lines are what `receipts verify` takes."""
    filters = {"key_id": key, "chain": chain, "from_s": moment_of(since), "to_s": moment_of(until)}
    fault: OSError | None = None
    with open_store(data_dir, write=False) as connection:
        require_key(connection, key)
        require_chain(connection, chain)
        receipts = _pages(connection, filters)
        try:
            if output is None or str(output) == "-":
                _write(receipts, "json" if as_json else form, sys.stdout)
            else:
                with _private_file(output) as file:
                    _write(receipts, "json" if as_json else form, file)
            sys.stdout.flush()
        except OSError as error:
            fault = error  # of the output: the store must not be blamed for it
    if isinstance(fault, BrokenPipeError):
        raise fault  # whoever read it has enough, as with any other command
    if fault is not None:
        _not_written(output, fault)


@receipts_app.command("show")
def show(data_dir: DataDir, receipt_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Print one receipt as JSON."""
    del as_json  # a receipt has no other form
    with open_store(data_dir, write=False) as connection:
        receipt = get_receipt(connection, receipt_id)
        like = receipt_ids_like(connection, receipt_id) if receipt is None else []
        envelope = None if receipt is None else receipt.envelope()
    if envelope is None:
        hint = did_you_mean(receipt_id, like, "It may have been pruned")
        fail("no_such_receipt", f"there is no receipt {receipt_id} in this store", hint, USAGE)
    print_json(envelope)


def _trusted(signer: Path | None, public_key: str | None) -> dict[str, bytes] | None:
    if signer is None and public_key is None:
        return None
    trusted: dict[str, bytes] = {}
    if public_key is not None:
        try:
            raw = base64.b64decode(public_key, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise typer.BadParameter("give the 32 raw bytes of an Ed25519 key in base64", param_hint="--public-key")
        trusted[key_id_of(raw)] = raw
    if signer is not None:
        try:
            document = json.loads(signer.read_bytes())
            for history in _histories(document):
                trusted |= trusted_keys(history)
        except OSError as error:
            fail("unreadable", f"cannot read {signer}: {error.strerror or error}", "", USAGE)
        except HistoryError as error:
            fail("bad_history", f"{signer}: {error}", "Fetch it again from GET /v1/signer", USAGE)
        except ValueError:
            fail("bad_history", f"{signer} is not JSON", "Fetch it again from GET /v1/signer", USAGE)
    return trusted


def _histories(document: Any) -> list[Any]:
    """The key histories in what `GET /v1/signer` or `keys list --json` answered."""
    if isinstance(document, list):
        return document
    others = document.get("others") if isinstance(document, dict) else None
    return [document, *(others if isinstance(others, list) else ())]


def _check(path: Path, found: Verification, *, quiet: bool) -> Finding | None:
    try:
        with sys.stdin.buffer if str(path) == "-" else path.open("rb") as file, _progress(found, quiet=quiet):
            for number, item in items_of(file):
                try:
                    found.add(item)
                except BadReceipt as bad:
                    return finding(number, item, bad)
    except OSError as error:
        fail("unreadable", f"cannot read {path}: {error.strerror or error}", "Name a file of receipts", USAGE)
    return None


def _progress(found: Verification, *, quiet: bool) -> AbstractContextManager[object]:
    """Shows on a terminal how far a check is, as one of a large chain takes minutes; it leaves nothing behind."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        return nullcontext()
    return Live(
        get_renderable=lambda: Text(f"{found.receipts} receipts checked"),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _say_bad(path: Path, bad: Finding, found: Verification, as_json: bool) -> None:
    if as_json:
        where = {"file": str(path), "line": bad.line, "chain": bad.chain, "seq": bad.seq}
        print_json({**_summary(found), "ok": False, "bad": {**where, "code": bad.code, "message": bad.message}})
        return
    link = "" if bad.seq is None else f", link {bad.seq} of chain {bad.chain}"
    typer.echo(f"bad: {path}, line {bad.line}{link}: {bad.message} [{bad.code}]")


def _say_good(found: Verification, as_json: bool) -> None:
    if as_json:
        print_json({**_summary(found), "ok": True, "bad": None})
        return
    count = "1 receipt" if found.receipts == 1 else f"{found.receipts} receipts"
    spans = ", ".join(f"{name} links {found.first[name].seq} to {last.seq}" for name, last in found.last.items())
    typer.echo(f"good: {count}, chain {spans}" + (f", gaps: {found.gaps}" if found.gaps else ""))
    signed = f"signed by {', '.join(sorted(found.signers))}"
    typer.echo(
        signed if found.trusted else f"{signed} (compare with the coordinator's GET /v1/signer, or pass --signer)"
    )


def _summary(found: Verification) -> dict[str, Any]:
    chains = {
        name: {"first_seq": found.first[name].seq, "last_seq": last.seq, "last_hash": last.hash}
        for name, last in found.last.items()
    }
    pinned = found.trusted is not None
    return {
        "receipts": found.receipts,
        "gaps": found.gaps,
        "chains": chains,
        "signers": sorted(found.signers),
        "pinned": pinned,
    }


def _pages(connection: Connection, filters: dict[str, Any]) -> Iterator[Sealed]:
    after = ("", 0)
    while page := page_of_receipts(connection, after=after, **filters):
        yield from page
        after = (page[-1].chain, page[-1].seq)


def _write(receipts: Iterator[Sealed], form: Literal["jsonl", "csv", "json"], file: TextIO) -> None:
    """Receipt by receipt: a chain may be far larger than memory."""
    if form == "csv":
        file.write(csv_head())
        file.writelines(map(csv_row, receipts))
    elif form == "jsonl":
        # A damaged one goes out with the others: it is `verify` that names it.
        file.writelines(receipt.line().decode(errors="replace") + "\n" for receipt in receipts)
    else:
        file.write("[")
        for number, receipt in enumerate(receipts):
            listed = orjson.dumps(receipt.envelope(), option=orjson.OPT_INDENT_2).decode()
            file.write(("," if number else "") + "\n" + listed)
        file.write("\n]\n")


def _private_file(path: Path) -> TextIO:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _not_written(path, error)
    return os.fdopen(descriptor, "w", encoding="utf-8", newline="")


def _not_written(path: Path | None, error: OSError) -> NoReturn:
    where = "standard output" if path is None or str(path) == "-" else str(path)
    fail("unwritable", f"cannot write {where}: {error.strerror or error}", "Name another file", USAGE)
