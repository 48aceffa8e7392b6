"""How the benches begin and end: a wrong argument is told at once, and nothing that was started is left."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent.parent
BENCH = ROOT / "scripts" / "bench"

WRONG = {
    ("run", "--repeats", "0"): "--repeats: at least 1",
    ("run", "--window", "nan"): "--window: a time above 0, in seconds",
    ("run", "--only", "nope"): "nope is none of short",
    ("run", "--only", ","): ", names none of short",
    ("run", "--json", "/nowhere/figures.json"): "--json: /nowhere/figures.json cannot be written",
    ("fleet", "--nodes", "-5"): "--nodes: at least 1",
    ("fleet", "--rest", "-1"): "--rest: a time above 0, in seconds",
    ("cluster", "--nodes", "5"): "unrecognized arguments: --nodes 5",
    ("cluster", "--json", "/"): "--json: / cannot be written",
    ("browser", "--tokens", "many"): "--tokens: invalid count value: 'many'",
    ("browser", "--model", "/nowhere"): "--model: /nowhere is no checkpoint",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_argument_is_told_before_anything_is_started(words, tmp_path):
    command = [sys.executable, str(BENCH / words[0]), *words[1:]]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert WRONG[words] in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_whoever_lacks_the_packages_is_told_how_to_get_them(tmp_path):
    script = tmp_path / "scripts" / "bench" / "run"  # a clone without `.venv`
    script.parent.mkdir(parents=True)
    for name in ("run", "start.py", "__init__.py"):
        (script.parent / name).write_bytes((BENCH / name).read_bytes())
    python = Path(sys.base_prefix) / "bin" / "python3"
    done = subprocess.run([str(python), "-S", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "run needs the packages of the tests\n  next: ./scripts/test fast (it makes .venv)\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where temporary files go; PostgreSQL's own user has to get in, and to fit its socket's path."""
    with tempfile.TemporaryDirectory(prefix="bench-") as path:
        folder = Path(path)
        folder.chmod(0o755)
        yield folder


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(
    "words", [("run", "--systems", "ours"), ("fleet", "--nodes", "3"), ("cluster",), ("../cluster_demo",)], ids=" ".join
)
def test_whoever_stops_a_bench_finds_nothing_left_of_it(words, number, folder):
    command = [sys.executable, str(BENCH / words[0]), *words[1:]]
    bench = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(folder), "PATH": "/usr/bin:/bin"},
    )
    deadline = time.monotonic() + 120
    started: list[psutil.Process] = []
    while not any("brain_coord" in words_of(each) for each in started):
        assert bench.poll() is None, bench.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
        started = psutil.Process(bench.pid).children(recursive=True)
    bench.send_signal(number)
    _, told = bench.communicate(timeout=60)
    assert bench.returncode == 130
    assert told.splitlines()[-1] == "stopped"
    assert "Traceback" not in told
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_the_bench_of_the_cluster_tells_each_figure_of_the_readme_with_facts_about_the_machine(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / "cluster"), "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(file.read_text())
    assert {"cpu", "cores", "memory_bytes", "python", "commit"} <= told["machine"].keys()
    figures = told["figures"]
    rows = figures.pop("request_us")
    assert all(used > 0 for used in figures.values())
    assert all(row[name] > 0 for row in rows.values() for name in ("a", "b", "redis"))
    # Its load is told with every job, so it has to be a small part of all that is known of a node.
    assert figures["take_in_load_us"] < figures["take_in_us"] / 2
