"""`brain-coord nodes`: the fleet as the coordinator sees it, and the operator's word about one node."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy import Connection

from brain_coord.cli.node_names import one_of
from brain_coord.cli.node_view import print_node, remembered
from brain_coord.cli.rows import print_rows
from brain_coord.cli.running import ask_or, ask_running
from brain_coord.cli.store_access import AsJson, DataDir, open_store, print_json
from brain_coord.node_desk import DEFAULT_BAN
from brain_coord.store import nodes as stored

nodes_app = typer.Typer(help="The fleet as the coordinator sees it.", invoke_without_command=True)

NodeName = Annotated[str, typer.Argument(metavar="ID", help="A node id, or enough of its first digits.")]


def _offline(data_dir: Path) -> list[dict[str, Any]]:
    """What the store remembers, while no coordinator runs."""
    with open_store(data_dir, write=False) as connection:
        known = stored.list_nodes(connection)
        benchmarks = stored.load_benchmarks(connection)
    measured = {each.node_id for each in benchmarks}
    return [
        {
            "node_id": node.node_id,
            "state": "OFFLINE",
            "operator": node.operator,
            "trusted": node.trusted,
            "basis": "coordinator-timed" if node.node_id in measured else "unmeasured",
            "region": node.region,
            "serves": [],
            "reliability": None,
        }
        for node in known
    ]


def _listed(data_dir: Path) -> list[dict[str, Any]]:
    return list(ask_or(lambda: _offline(data_dir), data_dir, "nodes"))


def _one_node(data_dir: Path, typed: str) -> str:
    return one_of("node", typed, [str(node["node_id"]) for node in _listed(data_dir)])


@nodes_app.callback()
def nodes(
    context: typer.Context,
    data_dir: DataDir,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every node that ever joined: state, models, measured speed, RTT and reliability."""
    if context.invoked_subcommand is not None:
        return
    listed = _listed(data_dir)
    if as_json:
        print_json(listed)
    elif listed:
        heads = ("node", "state", "models", "jobs", "tok/s", "RTT", "reliability")
        print_rows(heads, [_row(node) for node in listed])
    else:
        typer.echo("no node has joined yet; make a token with: brain-coord token create", err=True)


def _row(node: dict[str, Any]) -> list[str]:
    measured = node.get("measured", {})
    speeds = [f"{tok_s:.1f}" for tok_s in measured.get("credited_tok_s", {}).values()]
    rtt_ms = measured.get("rtt_ms")
    return [
        node["node_id"],
        node["state"],
        ", ".join(node["serves"]) or "-",
        f"{node.get('active', 0)}/{node.get('slots', 0)}",
        ", ".join(speeds) or "UNKNOWN",
        "UNKNOWN" if rtt_ms is None else f"{rtt_ms:.1f} ms",
        "-" if node["reliability"] is None else str(node["reliability"]),
    ]


@nodes_app.command("show")
def show(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Show one node. It tells state and way back, claims beside measurements, its score term by term, each event."""
    node_id = _one_node(data_dir, node)

    def offline() -> dict[str, Any]:
        with open_store(data_dir, write=False) as connection:
            return remembered(connection, node_id, time.time())

    view = ask_or(offline, data_dir, "node_show", node_id=node_id)
    if as_json:
        print_json(view)
    else:
        print_node(view)


@nodes_app.command("ban")
def ban(
    data_dir: DataDir,
    node: NodeName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What the node is told.")] = DEFAULT_BAN,
    as_json: AsJson = False,
) -> None:
    """Ban a node: it gets no work and may not join. The ban holds whatever name it takes with this key."""
    _act(data_dir, node, "ban", as_json, reason=reason)


@nodes_app.command("unban")
def unban(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Lift a ban; the node's score is what it was."""
    _act(data_dir, node, "unban", as_json)


@nodes_app.command("trust")
def trust(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Vouch for a node. Its answers and token counts may stand for its model's; it is ranked like any other."""
    _act(data_dir, node, "trust", as_json)


@nodes_app.command("untrust")
def untrust(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Stop vouching for a node."""
    _act(data_dir, node, "untrust", as_json)


@nodes_app.command("drain")
def drain(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Take a node out of service: no new jobs, running ones go on. Holds over restarts, until `undrain`."""
    _act(data_dir, node, "drain", as_json)


@nodes_app.command("undrain")
def undrain(data_dir: DataDir, node: NodeName, as_json: AsJson = False) -> None:
    """Take a node back into service. It links anew as soon as it runs no job."""
    _act(data_dir, node, "undrain", as_json)


@nodes_app.command("addresses")
def addresses(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Show who joins from where. Nodes are counted by network address, as the running coordinator saw them."""
    rows = ask_running(data_dir, "node_addresses")
    if as_json:
        print_json(rows)
        return
    heads = ("address", "connected", "seen", "new in a day", "refused")
    print_rows(heads, [[row["address"], *map(str, _address_cells(row))] for row in rows])


def _address_cells(row: dict[str, Any]) -> list[object]:
    return [", ".join(row["connected"]) or "-", len(row["seen"]), row["new_ids_last_day"], row["refused"]]


_OFFLINE_ACTS: dict[str, Callable[[Connection, str, str | None], bool]] = {
    "ban": stored.set_ban,
    "unban": lambda connection, node_id, _: stored.set_ban(connection, node_id, None),
    "trust": lambda connection, node_id, _: stored.set_trust(connection, node_id, True),
    "untrust": lambda connection, node_id, _: stored.set_trust(connection, node_id, False),
    "drain": lambda connection, node_id, _: stored.set_drain(connection, node_id, True),
    "undrain": lambda connection, node_id, _: stored.set_drain(connection, node_id, False),
}
_DONE = {
    "ban": "banned",
    "unban": "may join again",
    "trust": "trusted",
    "untrust": "no longer trusted",
    "drain": "draining: it gets no new jobs",
    "undrain": "back in service",
}


def _act(data_dir: Path, name: str, act: str, as_json: bool, reason: str | None = None) -> None:
    """Through the running coordinator, which carries it out at once; without one it holds from the next start on."""
    node_id = _one_node(data_dir, name)

    def offline() -> dict[str, Any]:
        with open_store(data_dir, write=True) as connection:
            _OFFLINE_ACTS[act](connection, node_id, reason)
            return remembered(connection, node_id, time.time())

    view = ask_or(offline, data_dir, f"node_{act}", node_id=node_id, reason=reason)
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{node_id}: {_DONE[act]} ({view['state']})")
