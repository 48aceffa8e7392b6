"""The container files without a container: their build steps, entry points and health checks run in a folder of their own."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_files import PACKAGING, instructions
from tests.support.coordinator import eventually
from tests.support.ports import free_port
from tests.support.processes import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Image:
    """What a Dockerfile says, with its `/opt/brain` and its sources under a folder of the test."""

    def __init__(self, name: str, root: Path) -> None:
        self.path = PACKAGING / "docker" / f"{name}.Dockerfile"
        self.root = root
        self.bin = root / "opt" / "brain" / "bin"
        lines = instructions(self.path)
        last = [name for name, _ in lines].index("FROM", 1)
        self.build, self.stage = lines[:last], lines[last:]

    def here(self, text: str) -> str:
        return text.replace("/opt/", f"{self.root}/opt/").replace("/var/lib/", f"{self.root}/var/lib/")

    def make(self) -> None:
        """Copy what its build copies, and nothing else; run what its build runs."""
        source = self.root / "src"
        source.mkdir()
        for name, rest in self.build:
            if name == "COPY":
                *copied, target = shlex.split(rest)
                for each in copied:
                    if Path(each).is_dir():
                        shutil.copytree(each, source / target, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(each, source / target)
            if name == "RUN":
                command = self.here(rest).replace("python -m venv", f"{sys.executable} -m venv", 1)
                done = subprocess.run(["sh", "-ec", command], cwd=source, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr

    @property
    def env(self) -> dict[str, str]:
        """The environment of its last stage, and no other settings of ours."""
        env = {name: value for name, value in os.environ.items() if "BRAIN_" not in name and name != "PYTHONPATH"}
        for name, rest in self.stage:
            if name == "ENV":
                env |= dict(word.split("=", 1) for word in shlex.split(self.here(rest)))
        return {**env, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def words(self, instruction: str) -> list[str]:
        text = next(rest for name, rest in self.stage if name == instruction)
        return list(json.loads(text[text.index("[") :]))


def test_the_coordinators_image_serves_and_is_healthy(tmp_path: Path):
    image = Image("coordinator", tmp_path)
    image.make()
    port = free_port()
    entry = [str(image.bin / image.words("ENTRYPOINT")[0]), *image.words("CMD"), "--port", str(port)]
    check = [re.sub(r":8470/", f":{port}/", word) for word in image.words("HEALTHCHECK")]
    check[0] = str(image.bin / check[0])
    with Program(entry, env=image.env, cwd=tmp_path) as program:
        program.wait_for("brain-coord listens on ")
        assert subprocess.run(check, env=image.env, cwd=tmp_path, check=False, timeout=60).returncode == 0
        assert (tmp_path / "var/lib/brain-coord").is_dir(), "its data lies in the volume"
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        assert program.stop() == 0, "SIGTERM is its stop signal"


def test_the_nodes_image_joins_and_tells_its_health(tmp_path: Path):
    image = Image("node", tmp_path)
    image.make()
    engine = next(rest for name, rest in image.stage if name == "RUN" and "engine install" in rest)
    words = shlex.split(re.search(r"brain-node (engine install[^&]*)", engine)[1].replace("${FLAVOUR}", "cpu"))
    node = str(image.bin / "brain-node")
    planned = subprocess.run(
        [node, *words, "--dry-run", "--json"], env=image.env, capture_output=True, text=True, check=True
    )
    assert json.loads(planned.stdout)["path"].startswith(str(tmp_path / "opt/engines"))
    check = [str(image.bin / image.words("HEALTHCHECK")[0]), *image.words("HEALTHCHECK")[1:]]

    def healthy() -> bool:
        return subprocess.run(check, env=image.env, capture_output=True, check=False, timeout=60).returncode == 0

    assert not healthy()
    options = ["http://127.0.0.1:9", "--engine", "mock"]
    with Program([node, *image.words("CMD"), *options], env=image.env, cwd=tmp_path) as program:
        eventually(healthy)
        assert program.stop() == 0
