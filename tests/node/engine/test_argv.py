"""Command line and environment of an engine."""

from pathlib import Path

import pytest

from brain_node.engine.argv import command, environment
from brain_node.engine.environments import Flavour
from brain_node.engine.errors import SpecError
from brain_node.engine.spec import EngineSpec

SCRATCH = Path("/tmp/brain-engine-x")


def spec(**wanted) -> EngineSpec:
    return EngineSpec("acme/model-7b", Path("/srv/weights"), ("/opt/py", "-m", "vllm"), Flavour.CUDA, **wanted)


def value(words: tuple[str, ...], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_the_engine_listens_on_loopback_under_the_catalogs_name():
    words = command(spec(), 21001)
    assert words[:3] == ("/opt/py", "-m", "vllm")
    assert value(words, "--host") == "127.0.0.1"
    assert value(words, "--port") == "21001"
    assert value(words, "--served-model-name") == "acme/model-7b"
    assert value(words, "--model") == "/srv/weights"


def test_what_the_plan_decided_stands_in_the_words():
    words = command(
        spec(tensor_parallel=2, memory_fraction=0.85, context=8192, max_seqs=32, args=("--quantization", "awq")), 1
    )
    assert value(words, "--tensor-parallel-size") == "2"
    assert value(words, "--gpu-memory-utilization") == "0.8500"
    assert value(words, "--max-model-len") == "8192"
    assert value(words, "--max-num-seqs") == "32"
    assert value(words, "--quantization") == "awq"


def test_no_flag_comes_twice():
    words = command(
        spec(context=4096, eager=True, args=("--max-model-len", "32768", "--enforce-eager", "--max-num-seqs", "4")), 1
    )
    assert words.count("--max-model-len") == 1
    assert value(words, "--max-model-len") == "4096"
    assert words.count("--enforce-eager") == 1
    assert value(words, "--max-num-seqs") == "4"


@pytest.mark.parametrize("args", [("--trust-remote-code",), ("--api-key", "x"), ("--host", "0.0.0.0"), ("--port", "1")])
def test_flags_outside_the_closed_set_never_reach_an_engine(args):
    with pytest.raises(SpecError) as caught:
        spec(args=args)
    assert caught.value.code == "engine_flag"


def test_only_what_is_listed_reaches_the_engine():
    base = {
        "PATH": "/usr/bin",
        "HOME": "/home/a",
        "LC_ALL": "C",
        "NCCL_P2P_DISABLE": "1",
        "BRAIN_NODE_TOKEN": "secret",
        "HF_TOKEN": "secret",
        "HTTPS_PROXY": "http://user:secret@proxy:1",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "VLLM_API_KEY": "another",
        "LD_PRELOAD": "/x.so",
        "PYTHONPATH": "/evil",
    }
    env = environment(spec(), "key", SCRATCH, base)
    assert "secret" not in " ".join(env.values())
    assert env["VLLM_API_KEY"] == "key"
    assert env["NCCL_P2P_DISABLE"] == "1"
    assert env["TMPDIR"] == str(SCRATCH)
    assert env["HF_HUB_OFFLINE"] == "1"
    assert not {"LD_PRELOAD", "PYTHONPATH", "HTTPS_PROXY"} & set(env)


@pytest.mark.case("A-08")
def test_cards_are_named_by_uuid_and_an_operators_restriction_stays():
    restricted = {"CUDA_VISIBLE_DEVICES": "GPU-small"}
    assert environment(spec(), "k", SCRATCH, restricted)["CUDA_VISIBLE_DEVICES"] == "GPU-small"
    env = environment(spec(visible_devices=("GPU-a", "GPU-b")), "k", SCRATCH, restricted)
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_cpu_engine_is_light_unless_the_operator_wants_more():
    cpu = EngineSpec("m/m", Path("/w"), ("p",), Flavour.CPU)
    assert environment(cpu, "k", SCRATCH, {})["OMP_NUM_THREADS"] == "1"
    assert environment(cpu, "k", SCRATCH, {"OMP_NUM_THREADS": "8"})["OMP_NUM_THREADS"] == "8"
    assert "OMP_NUM_THREADS" not in environment(spec(), "k", SCRATCH, {})


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5])
def test_a_memory_share_is_a_share(fraction):
    with pytest.raises(SpecError):
        spec(memory_fraction=fraction)


def test_replicas_of_a_model_have_names_of_their_own():
    assert spec().slug == "acme--model-7b"
    assert spec(replica=1).slug == "acme--model-7b.1"
