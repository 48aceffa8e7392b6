"""`brain-coord tabs`: the browser tabs that lend their GPU, and the operator's word about one."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from brain_coord.cli.node_names import one_of
from brain_coord.cli.rows import print_rows
from brain_coord.cli.running import ask_or
from brain_coord.cli.store_access import AsJson, DataDir, open_store, print_json
from brain_coord.node_desk import DEFAULT_BAN
from brain_coord.store import tabs as stored
from brain_coord.store.records import TabRecord

tabs_app = typer.Typer(help="The browser tabs that lend their GPU.", invoke_without_command=True)

TabName = Annotated[str, typer.Argument(metavar="ID", help="A tab id, or enough of its first digits.")]
LISTED: Final = 1000
"""Remembered tabs that are listed while no coordinator runs, those seen last first."""


@tabs_app.callback()
def tabs(
    context: typer.Context,
    data_dir: DataDir,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the tabs that lent since the coordinator started; while none runs, those that the store remembers."""
    if context.invoked_subcommand is not None:
        return
    listed = _listed(data_dir)
    if as_json:
        print_json(listed)
    elif listed:
        heads = ("tab", "state", "stages", "jobs", "RTT", "reliability", "verified", "refused")
        print_rows(heads, [_row(tab) for tab in listed])
    else:
        typer.echo("no tab has lent yet; a browser with WebGPU lends on the page /lend", err=True)


@tabs_app.command("ban")
def ban(
    data_dir: DataDir,
    tab: TabName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What the tab's page shows.")] = DEFAULT_BAN,
    as_json: AsJson = False,
) -> None:
    """Ban a tab: its link ends and it may not come back with this key."""
    _act(data_dir, tab, reason, as_json)


@tabs_app.command("unban")
def unban(data_dir: DataDir, tab: TabName, as_json: AsJson = False) -> None:
    """Lift a ban; what the tab was caught at stays."""
    _act(data_dir, tab, None, as_json)


def _act(data_dir: Path, typed: str, reason: str | None, as_json: bool) -> None:
    tab_id = _one_tab(data_dir, typed)

    def offline() -> dict[str, Any]:
        with open_store(data_dir, write=True) as connection:
            stored.ban_tab(connection, tab_id, reason, time.time())
            record = stored.get_tab(connection, tab_id)
        assert record is not None
        return _remembered(record)

    act = "tab_unban" if reason is None else "tab_ban"
    view = ask_or(offline, data_dir, act, tab_id=tab_id, reason=reason)
    if as_json:
        print_json(view)
    else:
        typer.echo(f"{tab_id}: {'may lend again' if reason is None else 'banned'}")


def _listed(data_dir: Path) -> list[dict[str, Any]]:
    return list(ask_or(lambda: [_remembered(record) for record in _stored(data_dir)], data_dir, "tabs"))


def _stored(data_dir: Path) -> list[TabRecord]:
    with open_store(data_dir, write=False) as connection:
        return stored.list_tabs(connection, LISTED)


def _one_tab(data_dir: Path, typed: str) -> str:
    known = {str(tab["node_id"]) for tab in _listed(data_dir)} | {record.tab_id for record in _stored(data_dir)}
    return one_of("tab", typed, known)


def _remembered(record: TabRecord) -> dict[str, Any]:
    reason = None if record.banned_reason is None else f"banned: {record.banned_reason}"
    return {
        "node_id": record.tab_id,
        "kind": "browser",
        "state": "OFFLINE",
        "reason": reason or (record.strike_reason if record.aside_until_s > time.time() else None),
        "first_seen_s": record.first_seen_s,
        "stages": [],
        "measured": {
            "rtt_ms": None,
            "reliability": None,
            "units_verified": record.units,
            "operations_verified": int(record.operations),
            "answers_refused": record.refused,
            "tokens": record.tokens,
        },
    }


def _row(tab: dict[str, Any]) -> list[str]:
    measured = tab["measured"]
    rtt_ms, reliability = measured["rtt_ms"], measured["reliability"]
    return [
        tab["node_id"],
        f"{tab['state']} ({tab['reason']})" if tab["reason"] else tab["state"],
        ", ".join(tab["stages"]) or "-",
        f"{tab.get('active', 0)}/{tab.get('slots', 0)}",
        "UNKNOWN" if rtt_ms is None else f"{rtt_ms:.1f} ms",
        "-" if reliability is None else str(reliability),
        f"{measured['units_verified']} units, {measured['tokens']} tokens",
        str(measured["answers_refused"]),
    ]
