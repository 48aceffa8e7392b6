"""Every `--json` of brain-node prints what its published schema says."""

import json

import pytest

from brain_node.cli.shapes import SHAPES
from brain_node.engine.environments import Flavour
from tests.support.eventually import eventually
from tests.support.fake_environment import make_catalog, make_environment
from tests.support.fake_nvml import FakeNvml, build, card
from tests.support.fake_vllm import FakeVllm
from tests.support.node_process import NodeProcess, brain_node
from tests.support.raw_coordinator import RawCoordinator
from tests.support.schemas import hold


def test_the_schema_of_a_command_can_be_had_by_its_words(run):
    document = json.loads(run("schema", "engine", "list").stdout)
    assert document["properties"]["engines_dir"]["type"] == "string"
    assert document["required"] == ["engines_dir", "engines"]
    assert set(json.loads(run("schema").stdout)) == set(SHAPES)
    wrong = run("schema", "engine", "lits")
    assert wrong.exit_code == 2
    assert "Did you mean engine list" in wrong.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"))


async def test_what_a_running_agent_answers_is_what_the_schema_says(tmp_path, library):
    machine = FakeNvml(tmp_path / "machine.txt")
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564, used_mib=300)]
    machine.write()
    env = {"BRAIN_NODE_ENGINES_DIR": str(tmp_path / "engines")}
    make_environment(tmp_path / "engines", Flavour.CPU, FakeVllm())
    catalog = str(make_catalog(tmp_path / "models", small=64, huge=900_000))
    folder = ("--data-dir", str(tmp_path / "data"))

    async def said(command: str, *more: str) -> dict:
        _, out, err = await brain_node(*command.split(), *more, "--json", *folder, env=env)
        assert out, err
        return hold(SHAPES, command, out)

    assert not (await said("status")).running
    options = ("--catalog", catalog, "--model", "test/small", "--model", "test/huge")
    async with (
        RawCoordinator() as coordinator,
        NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node,
    ):
        link = await coordinator.link()
        await link.say("notice", code="skipped", message="why", data={"skipped": {"offline": 2}})
        await link.say("notice", code="slow", message="benchmarked")
        await link.say("ping", n=1)
        await link.next("pong")
        while (await said("status")).engines[0].state != "ready":
            assert node.process.returncode is None, node.output
        states = [each.state for each in (await said("status")).engines]
        assert states == ["ready", "not_placed"]
        why = await said("why")
        assert (why.skipped, why.notices[0].code) == ({"offline": 2}, "slow")
        assert (await said("drain")).draining
        assert not (await said("resume")).draining
        assert (await said("doctor", "--catalog", catalog, coordinator.url)).findings
        assert (await said("identity show")).node_id.startswith("N-")
        await said("stop")
        await node.exit_code()
    env |= machine.env(library)
    (gpu,) = (await said("gpus")).gpus
    assert gpu.used_by_others_bytes == 300 << 20
    fits = {each.id: each.fits for each in (await said("models", "--catalog", catalog)).models}
    assert fits == {"test/small": True, "test/huge": False}
    assert (await said("engine list")).engines[0].name == "cpu-0.32.0"
    assert (await said("engine show", "cpu-0.32.0")).torch == "2.13.0"
    assert "Did you mean cpu-0.32.0" in (await said("engine show", "cpu-0.32")).error.next_step
    assert (await said("engine install", "--dry-run", "--cpu")).present


async def test_an_agent_with_the_mock_says_the_same(tmp_path):
    folder = tmp_path / "data"
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, folder):
        await coordinator.link()

        def linked() -> bool:
            return (folder / "agent.sock").exists()

        await eventually(linked)
        _, out, err = await brain_node("status", "--json", "--data-dir", str(folder))
        assert out, err
        status = hold(SHAPES, "status", out)
    assert status.engine.kind == "mock"
