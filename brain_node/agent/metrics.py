"""The agent's state as Prometheus text, offered on the local API; a view of `status`, counted nowhere else."""

from collections.abc import Iterable, Iterator
from typing import Any

_LINK_STATES = ("starting", "connecting", "online", "waiting", "refused", "stopped")


def metrics_of(state: dict[str, Any]) -> str:
    """The exposition of one `status` object; what is not known is left out, never 0."""
    link, jobs = state["coordinator"], state["jobs"]
    rows: list[tuple[str, str, str, Iterable[tuple[dict[str, str], float | None]]]] = [
        (
            "brain_node_info",
            "gauge",
            "Constant 1; its labels say what runs.",
            [({"version": state["version"], "engine": state["engine"]["kind"]}, 1)],
        ),
        (
            "brain_node_link_state",
            "gauge",
            "1 for the state the link to the coordinator is in.",
            [({"state": each}, float(link["state"] == each)) for each in _LINK_STATES],
        ),
        ("brain_node_link_sessions_total", "counter", "Sessions opened.", [({}, link["sessions"])]),
        ("brain_node_link_attempts_total", "counter", "Connections tried.", [({}, link["attempts"])]),
        ("brain_node_draining", "gauge", "1 while no new jobs are taken.", [({}, float(state["draining"]))]),
        ("brain_node_jobs_active", "gauge", "Jobs that run now.", [({}, jobs["active"])]),
        ("brain_node_slots", "gauge", "Jobs taken at a time.", [({}, jobs["slots"])]),
        (
            "brain_node_slot_connections",
            "gauge",
            "Open slot connections.",
            [({}, state["slot_connections"]["open"])],
        ),
        (
            "brain_node_jobs_total",
            "counter",
            "Jobs that ended, by how.",
            [({"outcome": name}, count) for name, count in sorted(jobs["finished"].items())],
        ),
        (
            "brain_node_jobs_refused_total",
            "counter",
            "Jobs not taken, by why.",
            [({"cause": name}, count) for name, count in sorted(jobs["refused"].items())],
        ),
        ("brain_node_engine_ready", "gauge", "1 for engines that take jobs.", _engines(state, _ready)),
        ("brain_node_engine_starts_total", "counter", "Engine processes launched.", _engines(state, "starts")),
        ("brain_node_engine_tokens_per_second", "gauge", "By the engine's own counter.", _engines(state, "tokens_s")),
        ("brain_node_gpu_memory_bytes", "gauge", "Memory of a card.", _cards(state, "total_bytes")),
        ("brain_node_gpu_memory_free_bytes", "gauge", "Free memory of a card.", _cards(state, "free_bytes")),
        ("brain_node_gpu_utilization_percent", "gauge", "Load of a card.", _cards(state, "utilization_percent")),
        ("brain_node_gpu_temperature_celsius", "gauge", "Temperature of a card.", _cards(state, "temperature_c")),
        ("brain_node_gpu_power_watts", "gauge", "Power drawn by a card.", _cards(state, "power_w")),
    ]
    return "".join(_lines(rows))


def _lines(rows: Iterable[tuple[str, str, str, Iterable[tuple[dict[str, str], float | None]]]]) -> Iterator[str]:
    for name, kind, text, samples in rows:
        known = [(labels, value) for labels, value in samples if value is not None]
        if not known:
            continue
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        for labels, value in known:
            inside = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
            yield f"{name}{'{' + inside + '}' if inside else ''} {float(value)!r}\n"


def _engines(state: dict[str, Any], figure: Any) -> list[tuple[dict[str, str], float | None]]:
    """One figure of each engine; several of one model are told apart by `replica`."""
    read = figure if callable(figure) else lambda each: each.get(figure)
    return [({"model": each["model"], "replica": str(each.get("replica", 0))}, read(each)) for each in state["engines"]]


def _ready(engine: dict[str, Any]) -> float:
    return float(engine["state"] == "ready")


def _cards(state: dict[str, Any], figure: str) -> list[tuple[dict[str, str], float | None]]:
    return [({"uuid": card["uuid"] or "unknown"}, card[figure]) for card in state["gpus"]]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
