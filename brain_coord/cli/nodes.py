"""`brain-coord nodes`: the fleet as the coordinator sees it."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from brain_coord.admin import AdminError, NotRunning, ask
from brain_coord.cli.store_access import DataDir, fail, open_store, print_json
from brain_coord.store import nodes as stored

nodes_app = typer.Typer(help="The fleet as the coordinator sees it.", invoke_without_command=True)


def _offline(data_dir: Any) -> list[dict[str, Any]]:
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
            "basis": "coordinator-timed" if node.node_id in measured else "unmeasured",
            "region": node.region,
            "serves": [],
            "reliability": None,
        }
        for node in known
    ]


@nodes_app.callback()
def nodes(
    context: typer.Context,
    data_dir: DataDir,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every node that ever joined: state, models, measured speed, RTT and reliability."""
    if context.invoked_subcommand is not None:
        return
    try:
        listed = ask(data_dir, "nodes")
    except NotRunning:
        listed = _offline(data_dir)
    except AdminError as error:
        fail("coordinator", str(error), "See the coordinator's log")
    if as_json:
        print_json(listed)
        return
    table = Table("node", "state", "models", "jobs", "tok/s", "RTT", "reliability")
    for node in listed:
        measured = node.get("measured", {})
        speeds = [f"{each['tok_s']:.1f}" for each in measured.get("benchmarks", {}).values()]
        rtt = measured.get("rtt_ms")
        table.add_row(
            node["node_id"],
            node["state"],
            "\n".join(node["serves"]) or "-",
            f"{node.get('active', 0)}/{node.get('slots', 0)}",
            "\n".join(speeds) or "UNKNOWN",
            "UNKNOWN" if rtt is None else f"{rtt:.1f} ms",
            "-" if node["reliability"] is None else str(node["reliability"]),
        )
    Console().print(table if listed else "no node has joined yet; make a token with: brain-coord token create")
