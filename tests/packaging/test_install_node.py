"""`scripts/install-node.sh` from beginning to end: checks, its own environment, a service, a node that is online, and away again."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coordinator import CoordinatorProcess
from tests.support.processes import Program

SCRIPT = Path("scripts/install-node.sh").absolute()

SYSTEMCTL = """#!/bin/sh
echo "$@" >>"$HOME/systemctl.log"
"""


class Machine:
    """A home folder of its own, with a systemctl that writes down what it is told."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.prefix = self.home / "app"
        self.tools = tools = folder / "tools"
        for each in (self.home, tools):
            each.mkdir(parents=True)
        fake = tools / "systemctl"
        fake.write_text(SYSTEMCTL)
        fake.chmod(0o755)
        # As somebody who is not root: `id -u` is all that the script asks.
        fake = tools / "id"
        fake.write_text("#!/bin/sh\necho 1000\n")
        fake.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BRAIN_", "XDG_"))}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
        }

    def run(self, *arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *arguments, "--prefix", str(self.prefix)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    @property
    def unit(self) -> Path:
        return self.home / ".config" / "systemd" / "user" / "brain-node.service"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_cannot_join_is_told_before_anything_is_changed(machine: Machine):
    for arguments, code in (
        ((), "no_url"),
        (("http://127.0.0.1:9", "--no-engine"), "unreachable"),
        (("http://127.0.0.1:9", "--token-file", "/nonexistent"), "no_token"),
        (("http://127.0.0.1:9", "--nonsense"), "usage"),
        (("uninstall",), "not_installed"),
    ):
        done = machine.run(*arguments)
        assert done.returncode != 0
        assert f"error [{code}]" in done.stderr
        assert "next: " in done.stderr
        assert not machine.prefix.exists()


def test_the_script_explains_itself(machine: Machine):
    assert "--token-file FILE" in machine.run("--help").stdout


def test_a_folder_with_something_else_in_it_is_left_alone(machine: Machine):
    machine.prefix.mkdir()
    (machine.prefix / "precious").write_text("mine")
    assert "prefix_in_use" in machine.run("http://127.0.0.1:9", "--no-engine").stderr
    assert "not_installed" in machine.run("uninstall", "--purge").stderr
    assert (machine.prefix / "precious").read_text() == "mine"


def test_a_purge_reaches_the_files_of_the_services_own_user(machine: Machine):
    """systemd keeps them under private/; what lies in the usual place is a link."""
    (machine.tools / "id").write_text("#!/bin/sh\necho 0\n")
    machine.prefix.mkdir()
    (machine.prefix / ".brain-node").touch()
    said = machine.run("uninstall", "--purge", "--dry-run").stdout
    for folder in ("/var/lib/private/brain-node", "/var/lib/brain-node", "/var/cache/private/brain-node"):
        assert folder in said
    assert "removed" not in said
    assert machine.prefix.exists()


@pytest.mark.slow
def test_from_nothing_to_a_node_that_serves_and_back(machine: Machine, tmp_path: Path):
    with CoordinatorProcess(tmp_path / "coord") as coordinator:
        token = tmp_path / "token"
        token.write_text(coordinator.token())
        options = (coordinator.url, "--token-file", str(token), "--no-engine", "--model", "brain/mock")

        said = machine.run(*options, "--dry-run").stdout
        assert "would run" in said
        assert not machine.prefix.exists()

        # The service is not really started here, so the wait for the welcome is cut short by starting it by hand.
        installing = Program(
            [str(SCRIPT), *options, "--prefix", str(machine.prefix), "--", "--engine", "mock"], env=machine.env
        )
        with installing:
            installing.wait_for("waiting for the coordinator", 240)
            assert "daemon-reload" in (machine.home / "systemctl.log").read_text()
            line = next(line for line in machine.unit.read_text().splitlines() if line.startswith("ExecStart="))
            assert token.read_text() not in line
            kept = machine.home / ".config" / "brain-node" / "token"
            assert kept.read_text() == token.read_text()
            assert kept.stat().st_mode & 0o777 == 0o600
            with Program(shlex.split(line.removeprefix("ExecStart=")), env=machine.env) as node:
                coordinator.wait_for_node(state="ONLINE")
                assert installing.wait(90) == 0
                assert "joined" in installing.output
                assert node.stop() == 0

        assert shutil.which("brain-node", path=str(machine.home / ".local" / "bin"))
        done = machine.run("uninstall")
        assert done.returncode == 0, done.stderr
        assert not machine.prefix.exists()
        assert not machine.unit.exists()
        assert kept.exists()
        machine.run(*options, "--no-service")
        assert machine.run("uninstall", "--purge").returncode == 0
        assert not kept.exists()
