"""The steps of the fleet bench: seed, join, rest, requests, deaths, silence, and a coordinator that restarts."""

import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

from sqlalchemy import Connection, insert

from brain_coord.store import tables
from brain_coord.store.records import Benchmark, NodeRecord
from brain_coord.store.store import Store
from brain_node.contract.catalog import load_catalog
from scripts.bench.fleet_sim import FINGERPRINT, identity_of, models_of, region_of
from scripts.bench.procs import usage
from scripts.bench.systems import PATH, ROOT, Stage
from tests.support.ports import free_port

HEARTBEAT_S: Final = 15.0
JOIN_S: Final = 240.0
CHECK_S: Final = 0.05


def real_models() -> list[str]:
    """Every model of the shipped catalog but the mock."""
    return [model.id for model in load_catalog(None) if not model.mock]


async def seed(folder: Path, count: int, models: Sequence[str]) -> None:
    """Let the store know the fleet with its benchmarks, as a coordinator does that restarts."""
    store = await Store.open(folder)
    now_s = time.time()
    nodes, benchmarks = [], []
    for number in range(count):
        identity = identity_of(number)
        nodes.append(
            NodeRecord(identity.node_id, identity.public_key, now_s, now_s, operator=False, region=region_of(number))
        )
        speed = 10 + 140 * ((number * 2654435761) % 1000) / 1000
        benchmarks += [
            Benchmark(identity.node_id, model, speed, 40.0, "PRO", FINGERPRINT, now_s)
            for model in dict.fromkeys(models_of(number, models))
        ]

    def write(connection: Connection) -> None:
        connection.execute(insert(tables.nodes), [asdict(node) for node in nodes])
        connection.execute(insert(tables.node_benchmarks), [asdict(each) for each in benchmarks])

    try:
        await store.write(write)
    finally:
        await store.close()


@dataclass(slots=True)
class Result:
    """One line of the table."""

    name: str
    value: str
    good: bool | None = None
    """Whether it is what was promised; `None` where nothing was."""


@dataclass(slots=True)
class Asker:
    """Asks the coordinator for answers, one after another, until it is told to stop."""

    stage: Stage
    url: str
    headers: dict[str, str]
    models: Sequence[str]
    pause_s: float = 0.02
    latencies_ms: list[tuple[float, float]] = field(default_factory=list)
    """When each answer was whole (monotonic seconds), and how long it took."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    _stop: bool = False
    _thread: Thread | None = None

    def run(self) -> None:
        """Until `stop`."""
        number = 0
        while not self._stop:
            number += 1
            model = self.models[number % len(self.models)]
            body = {"model": model, "stream": True, "messages": [{"role": "user", "content": f"hello {number}"}]}
            began = time.monotonic()
            told = self.stage.post(self.url + PATH, self.headers, json.dumps(body).encode())
            now = time.monotonic()
            if b"[DONE]" in told:
                self.latencies_ms.append((now, (now - began) * 1000))
            else:
                self.failures.append((now, told[:200].decode("utf-8", "replace")))
            time.sleep(self.pause_s)

    def __enter__(self) -> "Asker":
        self._thread = Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        assert self._thread is not None
        self._thread.join(30)


class FleetBench:
    """One run.

    Args:
        stage: starts and ends processes.
        count: nodes.
        say: progress for the person who waits.
    """

    def __init__(self, stage: Stage, count: int, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._count = count
        self._say = say
        self._models = real_models()
        self._port = free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._home = stage.folder / "coord"
        self._headers: dict[str, str] = {}
        self._pid = 0
        self.results: list[Result] = []

    def run(self, rest_s: float) -> list[Result]:
        """All steps."""
        self._say(f"seeding the store with {self._count} nodes")
        asyncio.run(seed(self._home, self._count, self._models))
        self._start_coordinator("start")
        made = subprocess.run(
            [
                sys.executable,
                "-m",
                "brain_coord",
                "key",
                "create",
                "--plan",
                "paid",
                "--json",
                "--data-dir",
                self._home,
            ],
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        self._headers = {
            "Authorization": "Bearer " + json.loads(made.stdout)["key"],
            "Content-Type": "application/json",
        }
        config = {"port": self._port, "models": self._models, "heartbeat_s": HEARTBEAT_S}
        self._fleet = self._stage.talk("fleet", [sys.executable, "-m", "scripts.bench.fleet_sim", json.dumps(config)])
        try:
            self._join()
            self._rest(rest_s)
            self._deaths()
            self._silence()
            self._restart()
        finally:
            self._fleet.kill()
        return self.results

    def _start_coordinator(self, what: str) -> None:
        argv = [sys.executable, "-m", "brain_coord", "serve", "--port", str(self._port), "--data-dir", str(self._home)]
        began = time.monotonic()
        self._pid = self._stage.start("brain-coord", [*argv, "--open-join", "--log-level", "error"])
        self._stage.until("health", "brain-coord", lambda: self._stage.fetch(f"{self._url}/healthz"))
        self._note(f"{what}: until it serves", f"{time.monotonic() - began:.1f} s")

    def _note(self, name: str, value: str, good: bool | None = None) -> None:
        self.results.append(Result(name, value, good))
        self._say(f"{name}: {value}{'' if good is None else '  ok' if good else '  NOT AS PROMISED'}")

    def _tell(self, **command: Any) -> dict[str, Any]:
        assert self._fleet.stdin is not None
        assert self._fleet.stdout is not None
        self._fleet.stdin.write(json.dumps(command).encode() + b"\n")
        self._fleet.stdin.flush()
        return dict(json.loads(self._fleet.stdout.readline()))

    def _until_up(self, wanted: int, limit_s: float) -> float:
        """Seconds until so many links are up."""
        began = time.monotonic()
        while (status := self._tell(do="status"))["up"] < wanted:
            if time.monotonic() - began > limit_s:
                raise RuntimeError(f"only {status['up']} of {wanted} links are up after {limit_s:.0f} s: {status}")
            time.sleep(0.1)
        return time.monotonic() - began

    def _join(self) -> None:
        empty = usage([self._pid])
        self._tell(do="start", nodes=self._count, spread_s=4.0)
        took = self._until_up(self._count, JOIN_S)
        used = usage([self._pid])
        self._note(
            "first join: all links up",
            f"{took:.1f} s, {1e3 * (used.cpu_s - empty.cpu_s) / self._count:.2f} ms CPU a node",
        )
        time.sleep(5)
        held = (usage([self._pid]).rss_bytes - empty.rss_bytes) / self._count
        self._note("memory a link, node included", f"{held / 1024:.1f} KiB")

    def _rest(self, rest_s: float) -> None:
        self._say(f"resting for {rest_s:.0f} s")
        before, began = usage([self._pid]), time.monotonic()
        time.sleep(rest_s)
        share = (usage([self._pid]).cpu_s - before.cpu_s) / (time.monotonic() - began)
        self._note("coordinator at rest, heartbeats and pings", f"{100 * share:.1f} % of a core")
        with self._asker() as asker:
            time.sleep(min(10.0, rest_s))
        self._answers("with the fleet at rest", asker)
        self._routing()

    def _asker(self) -> Asker:
        return Asker(self._stage, self._url, self._headers, self._models)

    def _answers(self, when: str, asker: Asker) -> None:
        times = [took for _, took in asker.latencies_ms]
        slowest = max(times, default=math.nan)
        shown = (
            f"{len(times)} answers, median {statistics.median(times or [math.nan]):.1f} ms, slowest {slowest:.0f} ms"
        )
        failed = f", {len(asker.failures)} failed: {asker.failures[0][1]}" if asker.failures else ""
        self._note(f"answers {when}", shown + failed, good=not asker.failures)

    def _routing(self) -> None:
        """Decide dry for every model, and compare with the pure function over the fleet as the coordinator shows it."""
        times = []
        for model in [*self._models, "brain/auto"]:
            body = json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}]}).encode()
            began = time.monotonic()
            told = json.loads(self._stage.post(f"{self._url}/v1/route", self._headers, body))
            times.append((time.monotonic() - began) * 1000)
            selected = told["node"]["selected"]
            ranked = told["node"]["ranked"]
            if (ranked[0]["node_id"] if ranked else None) != selected:
                raise RuntimeError(f"{selected} is not the first of its ranking: {ranked[:2]}")
        self._note("dry decisions over HTTP", f"median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms")

    def _offline_after(self, chosen: dict[str, Any], limit_s: float) -> list[float]:
        """Seconds from the event to the moment at which each node is known to be offline."""
        waiting, found = set(chosen["ids"]), []
        while waiting and time.monotonic() - chosen["at"] < limit_s:
            for node_id in tuple(waiting):
                body = {"model": self._models[0], "messages": [{"role": "user", "content": "x"}], "node": node_id}
                told = self._stage.post(f"{self._url}/v1/route", self._headers, json.dumps(body).encode())
                if b"offline" in told:
                    waiting.discard(node_id)
                    found.append(time.monotonic() - chosen["at"])
            time.sleep(CHECK_S)
        if waiting:
            raise RuntimeError(f"{len(waiting)} nodes still count as connected after {limit_s:.0f} s")
        return found

    def _deaths(self) -> None:
        with self._asker() as asker:
            times = self._offline_after(self._tell(do="kill", nodes=10), 30)
        self._note("killed node (socket closed) noticed", f"within {max(times):.2f} s", good=max(times) < 1)
        self._answers("while nodes die", asker)

    def _silence(self) -> None:
        self._say("nodes fall silent; three heartbeats")
        times = self._offline_after(self._tell(do="freeze", nodes=10), 4 * HEARTBEAT_S)
        within = 3 * HEARTBEAT_S
        self._note(
            "silent node (half-open) noticed",
            f"after {min(times):.1f} to {max(times):.1f} s",
            good=max(times) < 1.15 * within,
        )

    def _restart(self) -> None:
        wanted = self._tell(do="status")["up"]
        self._tell(do="timeline")
        self._say("the coordinator is killed and started again")
        began = time.monotonic()
        self._start_coordinator("restart")
        served = time.monotonic()
        with self._asker() as asker:
            self._until_up(wanted, JOIN_S)
        ups = self._tell(do="timeline")["ups"]
        self._note(
            "restart: all links back after it serves",
            f"{max(ups) - served:.1f} s (half: {statistics.median(ups) - served:.1f} s)",
        )
        first = min((at for at, _ in asker.latencies_ms), default=math.nan)
        self._note("restart: first answer after the kill", f"{first - began:.1f} s")
        self._answers("while the fleet comes back", asker)


def table(results: Sequence[Result]) -> str:
    """All lines for people."""
    width = max(len(result.name) for result in results)
    marks = {None: "", True: "  ok", False: "  NOT AS PROMISED"}
    return "\n".join(f"  {result.name:<{width}}  {result.value}{marks[result.good]}" for result in results)


def to_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [asdict(result) for result in results]
