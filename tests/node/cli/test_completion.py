"""Completion, as the shell asks for it."""

import pytest

from tests.support.node_process import brain_node


async def complete(line: str, **env: str) -> list[str]:
    words = line.split(" ")
    asked = {"_BRAIN_NODE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    _, out, _ = await brain_node(env=asked | env)
    return out.split()


async def test_bash_gets_a_script():
    code, out, _ = await brain_node(env={"_BRAIN_NODE_COMPLETE": "source_bash"})
    assert code == 0
    assert "brain-node" in out


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("brain-node j", {"join"}),
        ("brain-node join --model qwen/qwen3-8", {"qwen/qwen3-8b"}),
        ("brain-node identity e", {"export"}),
    ],
)
async def test_commands_options_and_models_are_offered(line, offers):
    assert set(await complete(line)) == offers


async def test_logs_offers_the_engines_that_have_one(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "qwen--qwen3-8b.log").touch()
    (tmp_path / "logs" / "agent.log").touch()
    assert await complete("brain-node logs q", BRAIN_NODE_DATA_DIR=str(tmp_path)) == ["qwen/qwen3-8b"]
