"""The live panel of `brain-node join` on a terminal: cards, engines, jobs, and what the coordinator thinks of us."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

REFRESH_S: Final = 1.0
LOG_LINES: Final = 6

_LINK_STYLE: Final = {"online": "green", "waiting": "yellow", "connecting": "yellow", "refused": "red"}
_ENGINE_STYLE: Final = {"ready": "green", "failed": "red", "stalled": "red", "not_placed": "red"}


async def show_panel(
    console: Console, state: Callable[[], dict[str, Any]], why: Callable[[], dict[str, Any]], lines: Sequence[str]
) -> None:
    """Draw the state again and again until cancelled.

    Args:
        console: a terminal.
        state: what `status` shows.
        why: what `why` shows.
        lines: the newest log lines, kept up to date by the log itself.
    """
    with Live(console=console, auto_refresh=False, transient=False) as live:
        try:
            while True:
                live.update(render(state(), why(), lines), refresh=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            live.update(render(state(), why(), lines), refresh=True)


def render(state: dict[str, Any], why: dict[str, Any], lines: Sequence[str]) -> RenderableType:
    """One picture of the state."""
    parts: list[RenderableType] = [_head(state)]
    if state["gpus"]:
        parts.append(_cards(state["gpus"]))
    parts.append(_engines(state["engines"]))
    parts += [_jobs(state), *_thoughts(state, why)]
    problems = state["problems"] if state["engine"]["uses_cards"] else []
    parts += [Text(f"! {each['message']}: {each['next_step']}", style="yellow") for each in problems]
    parts.append(Text("\n".join(list(lines)[-LOG_LINES:]), style="dim", overflow="ellipsis", no_wrap=True))
    return Panel(Group(*parts), title=f"Brain Node {state['node_id']}", title_align="left", border_style="dim")


def _head(state: dict[str, Any]) -> Text:
    link = state["coordinator"]
    text = Text.assemble(link["url"], "  ", (link["state"], _LINK_STYLE.get(link["state"], "")))
    text.append(f" for {_time(link['for_s'])}")
    if state["draining"]:
        text.append(f"  draining (asked by {', '.join(state['draining_for'])})", style="yellow")
    if link["fault"] and link["state"] != "online":
        text.append(f"\n{link['fault']['message']}", style="yellow")
        if link["retry_in_s"] is not None:
            text.append(f"; next try in {link['retry_in_s']:.0f} s")
        if link["fault"]["next_step"]:
            text.append(f"\nnext: {link['fault']['next_step']}")
    return text


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def _cards(cards: Sequence[dict[str, Any]]) -> Table:
    table = _table("card", "memory", "load", "temp", "power", "state")
    for card in cards:
        total, free = card["total_bytes"], card["free_bytes"]
        memory = f"{_gib(total - free)} of {_gib(total)}" if total is not None and free is not None else "unknown"
        ok = card["state"] == "ok"
        table.add_row(
            Text(card["name"] or "unknown"),
            memory,
            _figure(card["utilization_percent"], "%"),
            _figure(card["temperature_c"], "C"),
            _figure(card["power_w"], "W"),
            Text(card["state"], style="green" if ok else "red"),
        )
    return table


def _engines(engines: Sequence[dict[str, Any]]) -> Table:
    table = _table("model", "state", "jobs", "tok/s")
    for each in engines:
        slots = each.get("slots")
        table.add_row(
            Text(each["model"]),
            Text(each["sentence"], style=_ENGINE_STYLE.get(each["state"], "yellow")),
            f"{each.get('active', 0)} of {slots}" if slots else "",
            _figure(each.get("tokens_s"), ""),
        )
    return table


def _jobs(state: dict[str, Any]) -> Text:
    jobs = state["jobs"]
    done = ", ".join(f"{count} {name}" for name, count in sorted(jobs["finished"].items())) or "none yet"
    slots = state["slot_connections"]
    return Text(f"jobs {jobs['active']} of {jobs['slots']}, finished: {done}; {slots['open']} slot connections")


def _thoughts(state: dict[str, Any], why: dict[str, Any]) -> list[Text]:
    """What the coordinator does not take, and why it skipped us."""
    texts = [Text(f"not accepted {each['model']}: {each['reason']}", "red") for each in state["coordinator"]["refused"]]
    skipped = [f"{reason} ({count})" for reason, count in (why["skipped"] or {}).items()]
    if skipped:
        texts.append(Text(f"skipped in the last hour: {', '.join(skipped)}", "yellow"))
    texts += [Text(f"{each['code']}: {each['message']}", "yellow") for each in why["notices"][:3]]
    return texts


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}".rstrip()


def _time(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
