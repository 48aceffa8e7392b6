"""`brain-coord top`: the fleet live in the terminal."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from brain_coord.cli.rows import print_rows
from brain_coord.cli.running import ask_running
from brain_coord.cli.store_access import AsJson, DataDir, print_json

UNKNOWN: Final = "UNKNOWN"
STATE_STYLE: Final = {"ONLINE": "green", "BUSY": "blue", "DEGRADED": "yellow", "DRAINING": "yellow", "OFFLINE": "dim"}
OUTCOME_STYLE: Final = {"completed": "green", "failed": "red", "incomplete": "red", "deadline": "red"}
NODE_HEADS: Final = ("node", "state", "region", "jobs", "tok/s", "RTT", "reliability", "models")
DECISION_HEADS: Final = ("time", "outcome", "model", "to", "first output", "tok/s")


def top(
    data_dir: DataDir,
    interval: Annotated[
        float, typer.Option(min=0.2, max=60, metavar="SECONDS", help="Seconds between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave; so it does off a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch the fleet; Ctrl-C leaves. It shows nodes, slots, speeds, models and the latest decisions."""
    first = _look(data_dir)
    if as_json:
        print_json(first)
        return
    console = Console()
    if once or not console.is_terminal:
        _print(first)
        return
    with Live(_picture(first, console.height), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(_picture(_look(data_dir), console.height), refresh=True)
        except KeyboardInterrupt:
            return


def _look(data_dir: Path) -> dict[str, Any]:
    return dict(ask_running(data_dir, "top"))


def figure(value: float | None, unit: str = "") -> str:
    """A number with its unit; UNKNOWN when it was never measured."""
    return UNKNOWN if value is None else f"{value:.1f} {unit}".rstrip()


def node_cells(node: dict[str, Any]) -> tuple[str, ...]:
    """One node's row."""
    fastest = max((each["tok_s"] for each in node["speeds"] if each["tok_s"] is not None), default=None)
    return (
        node["node_id"],
        node["state"],
        node["region"] or "-",
        f"{node['active']}/{node['slots']}",
        figure(fastest),
        figure(node["rtt_ms"], "ms"),
        str(node["reliability"]),
        ", ".join(node["models"]) or "-",
    )


def decision_cells(decision: dict[str, Any]) -> tuple[str, ...]:
    """One decision's row."""
    return (
        decision["time"][11:19],
        decision["outcome"],
        decision["model"],
        decision["node_id"] or decision["resource_class"] or decision["sentence"] or decision["error"] or "-",
        figure(decision["first_output_ms"], "ms"),
        figure(decision["decode_tok_s"]),
    )


def headline(seen: dict[str, Any]) -> str:
    """The fleet in one line."""
    summary = seen["summary"]
    states = ", ".join(f"{count} {state}" for state, count in summary["states"] if count) or "no node yet"
    return (
        f"{summary['connected']} of {summary['nodes']} nodes connected ({states}) · slots {summary['active']} of "
        f"{summary['slots']} · {summary['models']} models · {summary['running']} running, {summary['waiting']} waiting · "
        f"receipts {summary['receipts']}"
    )


def _print(seen: dict[str, Any]) -> None:
    sys.stdout.write(headline(seen) + "\n\n")
    print_rows(NODE_HEADS, map(node_cells, seen["nodes"]))
    if seen["decisions"]:
        sys.stdout.write("\n")
        print_rows(DECISION_HEADS, map(decision_cells, seen["decisions"]))


def _picture(seen: dict[str, Any], height: int) -> RenderableType:
    """One screen: as many nodes as fit, and the latest decisions below them."""
    decisions = seen["decisions"][:8]
    room = max(3, height - len(decisions) - 10)
    nodes = Table(*NODE_HEADS, expand=True, header_style="bold", box=None)
    for each in seen["nodes"][:room]:
        cells = node_cells(each)
        nodes.add_row(
            *(Text(cell, style=STATE_STYLE.get(cells[1], "") if at == 1 else "") for at, cell in enumerate(cells))
        )
    parts: list[RenderableType] = [Text(headline(seen), style="bold"), Text(), nodes]
    if len(seen["nodes"]) > room:
        parts.append(Text(f"and {seen['summary']['nodes'] - room} more", style="dim"))
    latest = Table(*DECISION_HEADS, expand=True, header_style="bold", box=None)
    for each in decisions:
        cells = decision_cells(each)
        latest.add_row(
            *(Text(cell, style=OUTCOME_STYLE.get(cells[1], "") if at == 1 else "") for at, cell in enumerate(cells))
        )
    return Group(*parts, Text(), latest)
