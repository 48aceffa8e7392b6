"""`scripts/gpu_check`: the agent's figures next to nvidia-smi's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_nvml import card

SCRIPT = Path(__file__).parents[3] / "scripts" / "gpu_check"


@pytest.fixture
def run(tmp_path):
    def run_script(env, *args):
        env = {key: value for key, value in env.items() if key != "CUDA_VISIBLE_DEVICES"}
        command = [sys.executable, str(SCRIPT), "--no-launch", *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    return run_script


@pytest.fixture
def smi(tmp_path):
    """An nvidia-smi that prints given rows."""

    def install(*rows):
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(rows) + "\nEND\n")
        program.chmod(0o755)
        return {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    return install


def test_without_a_card_it_says_so_and_is_no_failure(run):
    done = run({"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No NVIDIA card here")


def test_agreement_is_shown_with_what_fits(fake, library, run, smi, tmp_path):
    fake.cards = [card("NVIDIA A10G", 23028, used_mib=100, reserved_mib=400)]
    fake.write()
    path = smi(f"0, {fake.uuid(0)}, NVIDIA A10G, 23028, 22528, 100, 40, 580.65.06")
    done = run({**fake.env(library), **path}, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stdout
    assert "both agree" in done.stdout
    assert "yes qwen/qwen2.5-32b-instruct-awq" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["faults"] == []


def test_a_difference_is_a_fault(fake, library, run, smi):
    fake.cards = [card("NVIDIA A10G", 23028)]
    fake.write()
    path = smi(f"0, {fake.uuid(0)}, NVIDIA A10G, 24576, 24000, 0, 40, 580.65.06", "1, GPU-other, B, 1, 1, 0, 40, 1")
    done = run({**fake.env(library), **path})
    assert done.returncode == 1
    assert "GPU 0 memory.total: 23028 here, 24576 there" in done.stdout
    assert "GPU 1 GPU-other: not seen by the agent" in done.stdout
