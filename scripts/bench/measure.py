"""Runs one workload on one system and boils the load generator's figures down to one sample."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.bench.load import Plan
from scripts.bench.procs import usage
from scripts.bench.stats import percentile
from scripts.bench.systems import MODEL, PATH, ROOT, System
from scripts.bench.workloads import Workload

QUIET_S = 12.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One repeat of one workload on one system. Times in ms, processor time in µs; `None` where there is no figure.

    Attributes:
        cpu_us: by role of process, over everything the process did in the window; per request, for long streams per event.
        cpu_share: the same as a share of one core.
        rss_per_stream_bytes: by role, what the open streams added to resident memory.
    """

    requests: float
    events: float
    first_output_ms: float | None
    first_output_p99_ms: float | None
    total_ms: float | None
    event_delay_ms: float | None
    event_delay_p99_ms: float | None
    errors: dict[str, int]
    cpu_us: dict[str, float] = field(default_factory=dict)
    cpu_share: dict[str, float] = field(default_factory=dict)
    rss_per_stream_bytes: dict[str, float] = field(default_factory=dict)


def measure(system: System, engine: System, workload: Workload, warm_s: float, window_s: float) -> Sample:
    """One sample."""
    watch = {**engine.watch(), **system.watch()}
    idle = {role: usage(pids).rss_bytes for role, pids in watch.items()}
    plan = Plan(
        port=system.port,
        path=PATH,
        headers=system.headers,
        model=MODEL,
        ask=workload.ask,
        connections=workload.connections,
        warm_s=warm_s,
        window_s=window_s,
        long=workload.long,
        slow_readers=workload.slow_readers,
        watch=watch,
    )
    command = [sys.executable, "-m", "scripts.bench.load"]
    done = subprocess.run(command, input=json.dumps(asdict(plan)).encode(), capture_output=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed:\n{done.stderr.decode()[-2000:]}")
    figures = json.loads(done.stdout)
    return sample_of(figures, workload, idle)


def at_rest(system: System, engine: System) -> bool:
    """Wait until its processes have calmed down: what one load left behind must not be charged to the next."""
    deadline = time.monotonic() + QUIET_S
    pids = [pid for group in ({**engine.watch(), **system.watch()}).values() for pid in group]
    before = usage(pids).cpu_s
    while time.monotonic() < deadline:
        time.sleep(0.25)
        now = usage(pids).cpu_s
        if now - before < 0.05:
            return True
        before = now
    return False


def sample_of(figures: dict[str, Any], workload: Workload, idle: dict[str, int]) -> Sample:
    """Sums and samples of one run as rates and means."""
    window_s = figures["window_s"] or 1.0
    work = figures["events"] if workload.long else figures["requests"]
    cpu_s = {role: after["cpu_s"] - figures["before"][role]["cpu_s"] for role, after in figures["after"].items()}
    first, delay = figures["first_output_ms"], figures["event_delay_ms"]
    streams = figures["open_streams"]
    return Sample(
        requests=figures["requests"] / window_s,
        events=figures["events"] / window_s,
        first_output_ms=_mean(first),
        first_output_p99_ms=percentile(first, 0.99),
        total_ms=_mean(figures["total_ms"]),
        event_delay_ms=_mean(delay),
        event_delay_p99_ms=percentile(delay, 0.99),
        errors=figures["errors"],
        cpu_us={role: 1e6 * used / work for role, used in cpu_s.items()} if work else {},
        cpu_share={role: used / window_s for role, used in cpu_s.items()},
        rss_per_stream_bytes={
            role: (after["rss_bytes"] - idle[role]) / streams for role, after in figures["after"].items()
        }
        if workload.long and streams
        else {},
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
