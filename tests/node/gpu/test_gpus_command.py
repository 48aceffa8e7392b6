"""`brain-node gpus` as a person and a script meet it."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.fake_nvml import MIB, card

RUN = "import typer; from brain_node.cli.gpus import gpus; typer.run(gpus)"


@pytest.fixture
def run():
    def run_command(env, *args):
        env = {key: value for key, value in env.items() if key != "CUDA_VISIBLE_DEVICES"}
        command = [sys.executable, "-c", RUN, *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run_command


def test_json_has_the_documented_shape(fake, library, run):
    fake.cards = [card("NVIDIA A10G", 23028, used_mib=612, cc="8.6")]
    fake.write()
    done = run(fake.env(library), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    assert set(body) >= {"gpus", "driver", "problems"}
    (gpu,) = body["gpus"]
    expected = {
        "index": 0,
        "uuid": fake.uuid(0),
        "name": "NVIDIA A10G",
        "kind": "discrete",
        "state": "ok",
        "reason": None,
        "total_bytes": 23028 * MIB,
        "free_bytes": 22416 * MIB,
        "used_by_others_bytes": 612 * MIB,
        "visible": True,
        "compute_capability": "8.6",
    }
    assert {key: gpu[key] for key in expected} == expected


@pytest.mark.case("A-06")
def test_an_8_gb_card_is_called_one(fake, library, run):
    fake.cards = [card("NVIDIA GeForce RTX 4060", 8188)]
    fake.write()
    out = run(fake.env(library)).stdout
    assert "8 GB" in out
    assert "7 GB" not in out


@pytest.mark.case("A-02")
@pytest.mark.parametrize(("error", "code"), [(18, "nvml_version_mismatch"), (9, "nvml_driver_not_loaded")])
def test_a_driver_that_cannot_start_is_one_line_and_exit_code_69(fake, library, run, error, code):
    fake.system["init_error"] = error
    fake.write()
    for args in ([], ["--json"]):
        done = run(fake.env(library), *args)
        assert done.returncode == 69
        assert done.stderr.count("\n") == 1
        assert f"[{code}]" in done.stderr
        assert "Next: " in done.stderr
    assert json.loads(done.stdout)["problems"][0]["code"] == code


@pytest.mark.case("A-02")
def test_a_machine_without_a_driver_is_never_a_silent_zero(run):
    done = run({"PATH": os.environ["PATH"]})
    assert done.returncode == 69
    assert "[nvml_library_not_found]" in done.stderr


@pytest.mark.case("A-05")
def test_a_lost_card_among_healthy_ones_is_no_failure_of_the_command(fake, library, run):
    fake.cards = [card("A", 24564, error=15), card("B", 24564)]
    fake.write()
    done = run(fake.env(library))
    assert done.returncode == 0
    assert "lost: it fell off the bus" in done.stdout
    assert "[gpu_lost] GPU 0" in done.stderr


def test_off_a_terminal_there_are_no_colours_and_names_are_taken_literally(fake, library, run):
    fake.cards = [card("[red]NVIDIA[/red] B200", 183359)]
    fake.write()
    done = run({**fake.env(library), "PYTHONIOENCODING": "cp1252"})
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "[red]NVIDIA[/red] B200" in done.stdout
