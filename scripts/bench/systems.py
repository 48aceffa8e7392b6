"""The systems under test, as processes on this machine in front of one stub engine."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from scripts.bench.peers import installed
from scripts.bench.procs import with_children
from tests.support.ports import free_port

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MODEL: Final = "huggingfacetb/smollm2-135m-instruct"
"""Small enough that canaries ask for no known answer, which a stub cannot give; so nothing has to be switched off."""
PATH: Final = "/v1/chat/completions"
START_S: Final = 90.0
SLOTS: Final = 1024

ALL: Final = ("direct", "ours", "vllm-router", "vllm-router x2", "litellm")

Say = Callable[[str], None]


class NotReady(RuntimeError):
    """A system did not come up; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class System:
    """One way from the load generator to the stub engine.

    Attributes:
        name: as the table shows it.
        port: on 127.0.0.1.
        headers: what a client of it sends.
        parts: its own processes by role, without the stub engine.
        renew: starts it anew where it was; for one that does not come to rest after a load.
    """

    name: str
    port: int
    headers: dict[str, str]
    parts: dict[str, int]
    renew: Callable[[], "System"] | None = None

    def watch(self) -> dict[str, list[int]]:
        """Process ids by role, with what those processes started."""
        return {role: with_children([pid]) for role, pid in self.parts.items()}


class Stage:
    """Starts systems and ends every process with itself."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="brain-bench-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self._processes.values()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + 10.0
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        for process in self._processes.values():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, argv: Sequence[str], env: dict[str, str] | None = None) -> int:
        """Start a process, its output in a file, and end an earlier one of that name; returns its id."""
        if name in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[name].pid, signal.SIGKILL)
            self._processes[name].wait()
        environment = {**os.environ, "NO_PROXY": "127.0.0.1", "PYTHONUNBUFFERED": "1", **(env or {})}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                list(argv),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        self._processes[name] = process
        return process.pid

    def talk(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that takes commands on its standard input; it ends with the others."""
        with (self.folder / f"{name}.log").open("wb") as log:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            process = subprocess.Popen(list(argv), cwd=ROOT, start_new_session=True, **pipes)
        self._processes[name] = process
        return process

    def log(self, name: str) -> str:
        """The end of a process's output."""
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-25:])

    @staticmethod
    def post(url: str, headers: dict[str, str], body: bytes) -> bytes:
        """What a URL of this machine answers, errors included; `b""` when nobody answers."""
        request = urllib.request.Request(url, data=body, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            return bytes(error.read())
        except OSError:
            return b""

    def fetch(self, url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Any:
        """JSON from a URL of this machine, `None` while it cannot be had."""
        request = urllib.request.Request(url, data=body, headers=headers or {})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as response:
                return json.loads(response.read() or b"{}")
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def until(self, what: str, name: str, check: Callable[[], Any]) -> Any:
        """The first true answer of `check`."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if found := check():
                return found
            if self._processes[name].poll() is not None:
                break
            time.sleep(0.1)
        raise NotReady(f"{name}: {what} did not come true\n{self.log(name)}")

    def answers(self, name: str, port: int, headers: dict[str, str]) -> None:
        """Wait until a chat goes all the way through."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "bench-events=1 bench-rate=0 end"}]}
        told = {"Content-Type": "application/json", **headers}
        url = f"http://127.0.0.1:{port}{PATH}"
        self.until("an answer", name, lambda: self.fetch(url, told, json.dumps(body).encode()))

    # --- the systems -------------------------------------------------------------------------------------------------

    def direct(self) -> System:
        """The stub engine itself."""
        port = free_port()
        argv = [sys.executable, "-m", "scripts.bench.stub", "--port", str(port), "--model", MODEL]
        pid = self.start("stub", argv)
        self.answers("stub", port, {})
        return System("direct", port, {}, {"engine": pid})

    def ours(self, engine: System) -> System:
        """The real coordinator and a real node that attaches the stub engine; everything is on, as by default."""
        port, home, node_home = free_port(), self.folder / "coord", self.folder / "node"
        coordinator = [sys.executable, "-m", "brain_coord"]
        serve = [*coordinator, "serve", "--port", str(port), "--data-dir", str(home), "--open-join"]
        coord_pid = self.start("brain-coord", [*serve, *self.coordinator_options(), "--log-level", "warning"])
        url = f"http://127.0.0.1:{port}"
        self.until("health", "brain-coord", lambda: self.fetch(f"{url}/healthz"))
        made = subprocess.run(
            [*coordinator, "key", "create", "--plan", "paid", "--json", "--data-dir", str(home)],
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        headers = {"Authorization": "Bearer " + json.loads(made.stdout)["key"]}
        join = [sys.executable, "-m", "brain_node", "join", url, "--data-dir", str(node_home), "--engine", "attach"]
        join += ["--engine-url", f"http://127.0.0.1:{engine.port}", "--serve", f"{MODEL}={MODEL}"]
        node_pid = self.start("brain-node", [*join, "--slots", str(SLOTS), "--log-level", "warning"])
        self.until("a benchmarked node", "brain-node", lambda: self._benchmarked(url))
        self.answers("brain-coord", port, headers)
        return System("ours", port, headers, {"coordinator": coord_pid, "node": node_pid})

    @staticmethod
    def coordinator_options() -> list[str]:
        """Options of `brain-coord serve` that lift limits which the load itself would meet."""
        return []

    def _benchmarked(self, url: str) -> bool:
        listed = self.fetch(f"{url}/v1/nodes") or {}
        return any(node["basis"] == "coordinator-timed" for node in listed.get("data", []))

    def vllm_router(self, worker: System, name: str = "vllm-router") -> System:
        """One vllm-router in front of `worker`."""
        program = installed("vllm-router", self._say) / "bin" / "vllm-router"
        port, log = free_port(), name.replace(" ", "-")
        argv = [str(program), "--worker-urls", f"http://127.0.0.1:{worker.port}", "--policy", "round_robin"]
        argv += ["--port", str(port), "--prometheus-port", str(free_port()), "--log-level", "error"]
        pid = self.start(log, argv)
        self.answers(log, port, {})
        parts = {"router": pid}
        if worker.name != "direct":
            parts["router behind"] = worker.parts["router"]
        return System(name, port, {}, parts)

    def litellm(self, engine: System) -> System:
        """LiteLLM's proxy with one worker, its default."""
        program = installed("litellm", self._say) / "bin" / "litellm"
        port, config = free_port(), self.folder / "litellm.yaml"
        upstream = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{engine.port}/v1", "api_key": "none"}
        settings = {"model_list": [{"model_name": MODEL, "litellm_params": upstream}]}
        config.write_text(json.dumps(settings))  # YAML is a superset of JSON
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "DO_NOT_TRACK": "1"}
        env["LITELLM_MASTER_KEY"] = key = "sk-" + secrets.token_hex(8)
        argv = [
            str(program),
            "--config",
            str(config),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--telemetry",
            "False",
        ]
        pid = self.start("litellm", argv, env)
        headers = {"Authorization": f"Bearer {key}"}
        self.answers("litellm", port, headers)
        return System("litellm", port, headers, {"proxy": pid}, lambda: self.litellm(engine))

    def systems(self, wanted: Sequence[str]) -> list[System]:
        """All systems asked for, the direct way first."""
        engine = self.direct()
        found = [engine]
        if "ours" in wanted:
            found.append(self.ours(engine))
        if {"vllm-router", "vllm-router x2"} & set(wanted):
            router = self.vllm_router(engine)
            found += [router] if "vllm-router" in wanted else []
            if "vllm-router x2" in wanted:
                found.append(self.vllm_router(router, "vllm-router x2"))
        if "litellm" in wanted:
            found.append(self.litellm(engine))
        return found
