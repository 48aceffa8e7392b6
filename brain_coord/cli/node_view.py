"""One node for people, and what the store alone remembers of it."""

from typing import Any

import typer
from sqlalchemy import Connection

from brain_coord.cli.rows import print_rows
from brain_coord.fleet.health import Health
from brain_coord.fleet.reliability import WINDOW_S
from brain_coord.fleet.scores import explained
from brain_coord.fleet.standing import DAY_S, RECALLED, Standing
from brain_coord.fleet.states import Facts, explain_state
from brain_coord.receipts.body import timestamp
from brain_coord.store import nodes as stored

EVENTS_SHOWN = 20
"""A list for people shows this many events; `--json` has them all."""


def remembered(connection: Connection, node_id: str, wall_s: float) -> dict[str, Any]:
    """What is known of a node while no coordinator runs."""
    record = stored.get_node(connection, node_id)
    assert record is not None, "the id was taken from the same store"
    benchmarks = stored.load_benchmarks(connection, node_id)
    outcomes = stored.load_outcomes(connection, node_id, wall_s - WINDOW_S, RECALLED)
    standing = Standing.of(outcomes, stored.load_uptime(connection, int((wall_s - WINDOW_S) // DAY_S), node_id))
    health = Health.recalled((each.at_s, each.kind, each.result) for each in outcomes)
    degraded = None if health.degraded is None else health.degraded.reason
    state = explain_state(Facts(banned=record.banned_reason, left_because="no coordinator runs"))
    score = explained(standing, wall_s)
    return {
        "node_id": node_id,
        "state": state.state,
        "reason": state.reason,
        "way_back": state.way_back,
        "degraded": degraded,
        "banned": record.banned_reason,
        "trusted": record.trusted,
        "draining": record.draining,
        "operator": record.operator,
        "region": record.region,
        "first_seen_s": record.first_seen_s,
        "reliability": score["score"],
        "basis": "coordinator-timed" if benchmarks else "unmeasured",
        "measured": {
            "benchmarks": {
                each.model: {
                    "tok_s": each.decode_tok_s,
                    "first_output_ms": each.first_output_ms,
                    "compute_class": each.compute_class,
                    "measured_at_s": each.measured_s,
                }
                for each in benchmarks
            }
        },
        "score": score,
        "health": {"degraded": degraded, "suspect": health.suspect, "watched": health.watched},
    }


def print_node(view: dict[str, Any]) -> None:
    """The node in a few short tables."""
    typer.echo(f"{view['node_id']}  {view['state']}: {view['reason']} (way back: {view['way_back']})")
    marks = [name for name in ("operator", "trusted", "draining") if view.get(name)]
    if view.get("banned"):
        marks.append(f"banned: {view['banned']}")
    if marks:
        typer.echo("marks: " + ", ".join(marks))
    typer.echo("")
    print_rows(
        ("model", "credited tok/s", "samples", "benchmark tok/s", "class", "tokens reported / peers'"), _models(view)
    )
    _print_claims(view)
    score = view.get("score")
    if score is not None:
        typer.echo(f"\nreliability {score['score']}")
        rows = [[f"{term['points']:+.2f}", term["name"], term["because"]] for term in score["terms"]]
        print_rows(("points", "term", "because"), rows)
        _print_events(score["events"])
    if skips := view.get("skips"):
        typer.echo("\nrequests that passed it by within the last hour")
        print_rows(("count", "because"), [[str(count), reason] for reason, count in skips.items()])


def _models(view: dict[str, Any]) -> list[list[str]]:
    measured = view["measured"]
    credited, windows = measured.get("credited_tok_s", {}), measured.get("decode_tok_s", {})
    benchmarks, factors = measured["benchmarks"], measured.get("reported_token_factor", {})
    rows = []
    for model in sorted({*credited, *windows, *benchmarks}):
        benchmark = benchmarks.get(model)
        factor = factors.get(model)
        rows.append(
            [
                model,
                f"{credited[model]:.1f}" if model in credited else "UNKNOWN",
                str(windows[model]["samples"]) if model in windows else "0",
                "-" if benchmark is None else f"{benchmark['tok_s']:.1f}",
                "-" if benchmark is None else benchmark["compute_class"] or "-",
                "-" if factor is None else f"{1 / factor:.2f}" if factor else "-",
            ]
        )
    return rows


def _print_claims(view: dict[str, Any]) -> None:
    reported, rtt_ms = view.get("reported"), view["measured"].get("rtt_ms")
    if reported is None:
        return
    typer.echo("")
    rows = [
        ["RTT", "-", "UNKNOWN" if rtt_ms is None else f"{rtt_ms:.1f} ms"],
        [
            "VRAM",
            f"{reported['vram_mib']} MiB" if reported["vram_mib"] is not None else "-",
            "not measured: can only exclude",
        ],
        ["engine", f"{reported['engine'] or '-'} {reported['engine_version'] or ''}".strip(), "-"],
        ["slots", str(view.get("slots", 0)), f"{view.get('active', 0)} in use by the coordinator's count"],
    ]
    print_rows(("", "the node says", "the coordinator saw"), rows)


def _print_events(events: list[dict[str, Any]]) -> None:
    typer.echo("")
    rows = [
        [timestamp(each["at_s"]), each["kind"], each["result"], each["model"] or "-", each["detail"] or ""]
        for each in events[:EVENTS_SHOWN]
    ]
    if rows:
        print_rows(("time", "kind", "result", "model", "detail"), rows)
    if len(events) > EVENTS_SHOWN:
        typer.echo(f"and {len(events) - EVENTS_SHOWN} earlier events; --json has them all")
