"""`brain-coord route`: a dry run of both routers over a file, or once more over a receipt."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from brain_coord.cli.replay import replay_receipt
from brain_coord.cli.store_access import DataDir, fail
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.class_decision import ClassRow
from brain_coord.routing.dry_run import Routing, decide
from brain_coord.routing.node_decision import NodeDecision, NodeScore
from brain_coord.routing.reading import SnapshotError
from brain_coord.routing.sentences import number
from brain_coord.routing.snapshot import Snapshot, read_snapshot

BAD_DATA: Final = 65
"""Exit code: the file was read, but it is not a snapshot."""

NO_INPUT: Final = 66
"""Exit code: the file could not be read."""

ROWS_SHOWN: Final = 20
"""A table for people shows this many ranked and this many rejected nodes; `--json` has them all."""

TABLE_HEADS: Final = {
    "classes": ("class", "score", "cost", "latency", "reliability", "quality", "excluded because"),
    "nodes": ("node", "score", "capability", "availability", "latency", "reputation", "price", "notes"),
    "rejected": ("rejected node", "because"),
}


def route(
    data_dir: DataDir,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", allow_dash=True, help="One snapshot or a list; - is stdin."),
    ] = None,
    receipt: Annotated[
        str | None,
        typer.Option(
            "--receipt", metavar="ID|FILE", help="Decide again from a receipt alone; exit code 1: not the same."
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the decisions as JSON.")] = False,
) -> None:
    """Decide for a snapshot, or again for a receipt, and say why. It decides class and node; nothing is executed."""
    if (snapshot is None) == (receipt is None):
        raise typer.BadParameter("give one of them", param_hint="--snapshot or --receipt")
    if receipt is not None:
        replay_receipt(data_dir, receipt, json_output)
    elif snapshot is not None:
        route_snapshot(snapshot, json_output)


def route_snapshot(file: Path, json_output: bool) -> None:
    """Print what both routers decide for a file.

    Args:
        file: holds one snapshot or a list of them, each bare or as the `snapshot` member of an object; `-` is stdin.
        json_output: print JSON (an object, or a list for a list) instead of tables and sentences.

    Raises:
        typer.Exit: with 66 when the file cannot be read, 65 when it is no snapshot; the cause stands on stderr.
    """
    content = _read(file)
    try:
        document = _parsed(content)
        many = isinstance(document, list)
        snapshots = list(_snapshots(document if many else [document], many=many))
    except SnapshotError as error:
        next_step = "Mend that value; ROUTING.md describes the form of a snapshot"
        fail("bad_snapshot", _printable(str(error)), next_step, BAD_DATA)
    routings = [decide(snapshot) for snapshot in snapshots]
    for path in (path for snapshot in snapshots for path in snapshot.ignored):
        typer.echo(f"note: {_printable(path)} is no member of a snapshot and was ignored", err=True)
    if json_output:
        answers = [routing.to_dict() for routing in routings]
        typer.echo(orjson.dumps(answers if many else answers[0], option=orjson.OPT_INDENT_2))
    else:
        show_routings(routings)


def show_routings(routings: Iterable[Routing]) -> None:
    """Print decisions for people: tables and the sentence; without colour and boxes where no terminal reads them."""
    console = Console()
    # A terminal that cannot show every character gets the plain form, which replaces what it cannot write.
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf"):
        for routing in routings:
            for heads, rows in _tables(routing):
                console.print(_rich_table(heads, rows))
            console.print(_printable(routing.sentence), markup=False, highlight=False, soft_wrap=True)
        return
    blocks = [[*(_plain_table(*table) for table in _tables(routing)), routing.sentence] for routing in routings]
    text = "\n\n".join("\n\n".join(block) for block in blocks)
    typer.echo(_printable(text).encode(sys.stdout.encoding or "utf-8", "replace"))


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        cause = _printable(f"cannot read {file}: {error.strerror or error}")
        fail("unreadable_snapshot", cause, "Give --snapshot a file that exists, or - for standard input", NO_INPUT)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SnapshotError("$", f"is not JSON ({error})") from error


def _snapshots(documents: list[Any], *, many: bool) -> Iterator[Snapshot]:
    for index, document in enumerate(documents):
        path = f"$[{index}]" if many else "$"
        if isinstance(document, dict) and "snapshot" in document:
            yield read_snapshot(document["snapshot"], f"{path}.snapshot")
        else:
            yield read_snapshot(document, path)


def _printable(text: str) -> str:
    """Without control characters: a name in a file must not move the cursor of whoever reads it."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _tables(routing: Routing) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Heads and rows of everything a decision holds."""
    if routing.class_decision is not None and routing.class_decision.rows:
        yield TABLE_HEADS["classes"], [_class_cells(row) for row in routing.class_decision.rows]
    node = routing.node_decision
    if node is None:
        return
    rejected = ((node_id, ", ".join(reasons)) for node_id, reasons in node.rejections.items())
    for heads, rows in (("nodes", list(_ranked_cells(node))), ("rejected", list(rejected))):
        if rows:
            yield TABLE_HEADS[heads], _cut(rows)


def _cut(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    rest = len(rows) - ROWS_SHOWN
    more = [(f"and {rest} more", *[""] * (len(rows[0]) - 1))] if rest > 0 else []
    return [*rows[:ROWS_SHOWN], *more]


def _class_cells(row: ClassRow) -> tuple[str, ...]:
    score = "-" if row.score is None else number(row.score)
    state = row.state
    estimates = (
        "UNKNOWN" if state.cost_usd is None else f"{state.cost_usd:g} USD",
        "UNKNOWN" if state.latency_ms is None else f"{state.latency_ms:g} ms",
        "UNKNOWN" if state.reliability is None else f"{state.reliability:g}",
        "UNKNOWN" if state.quality is None else f"{state.quality:g}",
    )
    return str(row.resource_class), score, *estimates, ", ".join(row.exclusions)


def _ranked_cells(decision: NodeDecision | AutoNodeDecision) -> Iterator[tuple[str, ...]]:
    if isinstance(decision, NodeDecision):
        yield from (_score_cells(score.node_id, score) for score in decision.ranked)
    else:
        yield from (_score_cells(f"{score.node_id} {model.model_id}", score) for model, score in decision.ranked)


def _score_cells(name: str, score: NodeScore) -> tuple[str, ...]:
    figures = (score.total, score.capability, score.availability, score.latency, score.reputation, score.price)
    return name, *map(number, figures), ", ".join(score.notes)


def _rich_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table()
    for head in heads:
        table.add_column(head, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*(escape(_printable(cell)) for cell in row), style="bold" if index == 0 else None)
    return table


def _plain_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows))
    return "\n".join(line.rstrip() for line in lines)
