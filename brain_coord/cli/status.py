"""`brain-coord status`: whether the coordinator of a data folder runs, and how it and its cluster stand."""

from typing import Any, Final

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.running import ask_running
from brain_coord.cli.store_access import AsJson, DataDir, print_json
from brain_coord.cluster.view import CLOCKS_S

HEADS: Final = ("coordinator", "address", "nodes", "heard", "")


def status(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Show the running coordinator in short. It tells of requests, nodes, receipts, and the coordinators of its cluster."""
    seen = ask_running(data_dir, "status")
    if as_json:
        print_json(seen)
        return
    for line in lines(seen):
        typer.echo(line)
    if (cluster := seen["cluster"]) is not None:
        typer.echo("")
        print_rows(HEADS, [_row(each, cluster["name"]) for each in cluster["coordinators"]])


def lines(seen: dict[str, Any]) -> list[str]:
    """The coordinator in a few lines."""
    receipts, nodes, cluster = seen["receipts"], seen["nodes"], seen["cluster"]
    told = [
        f"brain-coord {seen['version']}, chain {seen['chain']}{', leaving' if seen['leaving'] else ''}",
        f"requests: {seen['running']} under way, {seen['waiting']} of them waiting for a slot",
        f"nodes: {nodes['connected']} connected of {nodes['known']} known",
        f"receipts: {receipts['state']}" + (f" ({receipts['reason']})" if receipts["reason"] else ""),
    ]
    if cluster is None:
        return [*told, "cluster: none, it runs alone"]
    reason = f" ({cluster['reason']})" if cluster["reason"] else ""
    told.append(f"cluster: {cluster['state']}{reason}; limits {cluster['limits']}")
    if cluster["name_taken"]:
        told.append(f"  another coordinator bears the name {cluster['name']} too: give each its own [cluster] name")
    return told


def _row(each: dict[str, Any], own: str) -> list[str]:
    heard = "this one" if each["name"] == own else f"{each['heard_s_ago']} s ago"
    notes = ["leaving"] if each["leaving"] else [] if each["reachable"] else ["not reached at this address"]
    if abs(ahead_s := each["clock_ahead_s"]) > CLOCKS_S:
        notes.append(f"its clock is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}")
    return [each["name"], each["address"], str(each["nodes"]), heard, ", ".join(notes)]
