"""`brain-node models` as a person and a script meet it."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.fake_nvml import FakeNvml, build, card

RUN = "import typer; from brain_node.cli.models import models; typer.run(models)"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def run(tmp_path):
    def run_command(env, *args):
        env = {key: value for key, value in env.items() if key != "CUDA_VISIBLE_DEVICES"}
        command = [sys.executable, "-c", RUN, "--data-dir", str(tmp_path / "data"), *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run_command


@pytest.fixture
def fake(tmp_path):
    return FakeNvml(tmp_path / "machine.txt")


def no_driver():
    return {"PATH": os.environ["PATH"]}


def test_json_tells_for_every_model_where_it_fits_or_why_not(fake, library, run):
    fake.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    fake.write()
    done = run(fake.env(library), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    by_id = {model["id"]: model for model in body["models"]}
    fits = by_id["qwen/qwen2.5-7b-instruct"]
    assert fits["fits"]
    assert fits["placement"]["gpu_uuids"] == [fake.uuid(0)]
    assert fits["placement"]["max_model_len"] == 32768
    assert fits["class_met_by"] == [fake.uuid(0)]
    refused = by_id["qwen/qwen2.5-72b-instruct-awq"]
    assert not refused["fits"]
    assert refused["refusal"]["code"] == "not_enough_memory"
    assert refused["class_gb"] == 48
    assert body["auto"]["placements"][0]["model"] == "qwen/qwen2.5-32b-instruct-awq"


@pytest.mark.case("A-06")
def test_a_model_asked_for_by_card_size_is_shown_as_meant_for_the_card_that_cannot_start_it_now(
    fake, library, run, tmp_path
):
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(
        '[[model]]\nid = "acme/m"\nname = "M"\nrepo = "acme/M"\nrevision = "main"\nparams_b = 3\ncontext = 4096\n'
        'min_vram_mib = 8192\nlicense = "mit"\ngated = false\ndevice = "cuda"\nargs = []\n'
    )
    fake.cards = [card("NVIDIA GeForce RTX 4060", 8188, used_mib=612)]
    fake.write()
    (model,) = json.loads(run(fake.env(library), "--json", "--catalog", str(catalog)).stdout)["models"]
    assert (model["class_gb"], model["class_met_by"]) == (8, [fake.uuid(0)])
    assert not model["fits"]
    assert "needs 8.0 GiB" in model["refusal"]["message"]
    assert "7.4 GiB of 8.0 GiB" in model["refusal"]["message"]


def test_a_machine_without_a_card_is_told_what_its_cpu_can_do(run):
    done = run(no_driver())
    assert done.returncode == 0
    assert "No NVIDIA card can be used" in done.stdout
    assert "smollm2-135m-instruct" in done.stdout
    assert "[nvml_library_not_found]" in done.stderr


def test_a_broken_catalog_is_one_error_and_the_code_for_configuration(run, tmp_path):
    catalog = tmp_path / "catalog.toml"
    catalog.write_text("[[model]]\nid = 3\n")
    done = run(no_driver(), "--catalog", str(catalog))
    assert done.returncode == 78
    assert "catalog_invalid" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_catalog_may_be_named_by_the_environment(run):
    done = run({**no_driver(), "BRAIN_NODE_CATALOG": "/nonexistent.toml"})
    assert done.returncode == 78
    assert "/nonexistent.toml" in done.stderr


LOCAL = (
    '[[model]]\nid = "acme/local"\nname = "Local"\nrepo = "./local"\nrevision = "main"\nparams_b = 13\ncontext = 4096\n'
    'min_vram_mib = 26000\nlicense = "mit"\ngated = false\ndevice = "cuda"\nargs = []\n'
)
SHAPE = {"num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8, "hidden_size": 5120}


@pytest.fixture
def local_model(tmp_path):
    """A checkpoint of 24 GiB that takes no room on the disk."""
    folder = tmp_path / "local"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(24 << 30)
    (tmp_path / "catalog.toml").write_text(LOCAL)
    return folder


def test_a_local_folder_too_large_for_one_card_is_spread_over_two(fake, library, run, tmp_path, local_model):
    fake.cards = [card("NVIDIA GeForce RTX 4090", 24564), card("NVIDIA GeForce RTX 4090", 24564)]
    fake.write()
    words = ("--json", "--catalog", str(tmp_path / "catalog.toml"))
    (model,) = json.loads(run(fake.env(library), *words).stdout)["models"]
    assert model["fits"]
    assert model["placement"]["tensor_parallel"] == 2
    assert model["placement"]["gpu_uuids"] == [fake.uuid(0), fake.uuid(1)]


def test_a_damaged_local_folder_is_told_with_its_file(fake, library, run, tmp_path, local_model):
    (local_model / "config.json").write_text("{")
    fake.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    fake.write()
    words = ("--json", "--catalog", str(tmp_path / "catalog.toml"))
    (model,) = json.loads(run(fake.env(library), *words).stdout)["models"]
    assert model["refusal"]["code"] == "checkpoint_unusable"
    assert f"{local_model}/config.json is damaged: not JSON" in model["refusal"]["message"]
    assert "config.json and *.safetensors" in model["refusal"]["next_step"]
