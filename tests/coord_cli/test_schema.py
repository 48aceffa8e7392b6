"""Every `--json` of brain-coord prints what its published schema says."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from brain_coord.cli import app
from brain_coord.cli.shapes import SHAPES
from brain_coord.store.records import TabRecord
from brain_coord.store.session import session
from brain_coord.store.tabs import save_tabs
from tests.support.configured import Configured
from tests.support.fake_openai import FakeOpenAi, status
from tests.support.qwen3 import build_known_qwen3
from tests.support.raw_node import RawNode
from tests.support.schemas import hold

VECTORS = Path(__file__).parent.parent / "vectors" / "routing.json"
TAB = "N-0123456789ABCDEF"
REPORT = {
    "os": "Linux",
    "engine": "vllm",
    "engine_version": "0.32.0",
    "vram_mib": 24564,
    "gpus": [{"name": "NVIDIA GeForce RTX 4090", "uuid": "GPU-1", "total_bytes": 24564 << 20}],
}


def test_the_schema_of_a_command_can_be_had_by_its_words():
    document = json.loads(CliRunner().invoke(app, ["schema", "key", "create"]).stdout)
    assert document["required"] == ["key", "id", "plan", "label"]
    wrong = CliRunner().invoke(app, ["schema", "key", "crate"])
    assert wrong.exit_code == 2
    assert "Did you mean key create" in wrong.stderr


class Said:
    """Commands of brain-coord on one coordinator's folder, each held against its schema."""

    def __init__(self, coordinator: Configured) -> None:
        self.coordinator = coordinator
        self.commands: set[str] = set()

    async def __call__(self, command: str, *more: str) -> Any:
        done = await asyncio.to_thread(run, self.coordinator, command, *more)
        assert done.stdout, done.stderr
        self.commands.add(command)
        return hold(SHAPES, command, done.stdout)


def run(coordinator: Configured, command: str, *more: str) -> Result:
    return CliRunner().invoke(app, [*command.split(), *more, "--json", "--data-dir", str(coordinator.data_dir)])


async def test_what_every_command_prints_is_what_its_schema_says(tmp_path, monkeypatch):
    with Configured(tmp_path / "data") as coordinator:
        said = Said(coordinator)
        await the_fleet(coordinator, said)
        await what_was_recorded(coordinator, said, tmp_path)
        await keys_tokens_and_the_operator(coordinator, said)
        await configuration_and_decisions(said, tmp_path)
        await models_for_tabs(said, tmp_path)
        await what_a_stopped_coordinator_remembers(coordinator, said, tmp_path, monkeypatch)
    assert said.commands == set(SHAPES)


async def the_fleet(coordinator: Configured, said: Said) -> None:
    async with FakeOpenAi("far") as far, FakeOpenAi("m", script=status(404)) as lacking:
        coordinator.reload(
            far.toml("external", "far", probe_s=0.2, api_key_env="PATH"), lacking.toml("cloud", "near", probe_s=0)
        )
        async with RawNode(coordinator.url, report=REPORT, offer={"region": "eu", "ask_usd_per_1m": 0.5}) as node:
            await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
            await coordinator.chat("brain/mock", stream=True)
            await coordinator.chat("far")
            await coordinator.chat("m")
            (listed,) = await said("nodes")
            assert listed.reported.gpus[0].name == "NVIDIA GeForce RTX 4090"
            shown = await said("nodes show", node.node_id)
            assert shown.score.events
            assert shown.address == "127.0.0.1"
            (address,) = await said("nodes addresses")
            assert address.connected == [node.node_id]
            targets = {each.name: each for each in await said("targets")}
            assert targets["near"].not_found == ["m on /v1/chat/completions"]
            assert (await said("status")).nodes.connected == 1
            top = await said("top", "--once")
            assert top.summary.connected == 1
            assert {each.outcome for each in top.decisions} == {"completed", "failed"}
            for act in ("trust", "untrust", "drain", "undrain", "ban", "unban"):
                await said(f"nodes {act}", node.node_id)


async def what_was_recorded(coordinator: Configured, said: Said, tmp_path: Path) -> None:
    receipts = await said("receipts export")
    assert {each.body.resource_class for each in receipts} >= {"NATIVE_NETWORK", "EXTERNAL_MODEL", None}
    shown = await said("receipts show", receipts[0].body.id)
    assert shown == receipts[0]
    again = await said("route", "--receipt", shown.body.id)
    assert again.same
    exported = await asyncio.to_thread(run, coordinator, "receipts export")
    file = tmp_path / "receipts.json"
    file.write_text(exported.stdout)
    assert (await said("receipts verify", str(file))).ok
    file.write_text(exported.stdout.replace('"plan": "paid"', '"plan": "free"', 1))
    assert (await said("receipts verify", str(file))).bad.code
    assert {row.side for row in await said("ledger")} == {"node", "key"}
    assert (await said("keys rotate")).endorsed_by
    (history,) = await said("keys list")
    assert len(history.keys) == 2
    missing = await asyncio.to_thread(run, coordinator, "receipts show", shown.body.id[:-1] + "z")
    assert f"Did you mean {shown.body.id}" in missing.stderr


async def keys_tokens_and_the_operator(coordinator: Configured, said: Said) -> None:
    made = await said("key create", "--label", "x")
    await said("key list")
    wrong = await asyncio.to_thread(run, coordinator, "key revoke", made.id[:-1])
    assert f"Did you mean {made.id}" in wrong.stderr
    assert (await said("key revoke", made.id)).revoked
    token = await said("token create", "--ttl", "7d", "--uses", "3")
    await said("token list")
    assert (await said("token revoke", token.id)).revoked
    assert (await said("operator create")).secret
    assert (await said("operator revoke")).revoked


async def configuration_and_decisions(said: Said, tmp_path: Path) -> None:
    good = await said("check-config")
    assert good.settings["queue"]["wait_s"]["source"] == "default"
    bad = tmp_path / "bad.toml"
    bad.write_text("[queue]\nwiat_s = 3\n[log]\nlevel = 'loud'\n")
    assert len((await said("check-config", str(bad))).faults) == 2
    snapshot = tmp_path / "snapshot.json"
    vectors = json.loads(VECTORS.read_text())
    snapshot.write_text(json.dumps([each["snapshot"] for each in vectors[:400]]))
    decided = await said("route", "--snapshot", str(snapshot))
    assert any(each.class_decision and each.class_decision.selected for each in decided)
    assert any(each.node and each.node.ranked for each in decided)


async def models_for_tabs(said: Said, tmp_path: Path) -> None:
    build_known_qwen3(tmp_path / "model")
    assert (await said("browser-model add", str(tmp_path / "model"), "--id", "qwen/qwen3-0.6b")).stages
    assert (await said("browser-model list"))[0].id == "qwen/qwen3-0.6b"
    assert (await said("browser-model remove", "qwen/qwen3-0.6b")).removed


async def what_a_stopped_coordinator_remembers(
    coordinator: Configured, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await said("db check")).current
    assert not (await said("db upgrade")).upgraded
    assert (await said("db backup", str(tmp_path / "copy"))).files
    await asyncio.to_thread(coordinator.program.stop)
    (node,) = await said("nodes")
    assert node.state == "OFFLINE"
    assert (await said("nodes show", node.node_id)).score.events
    assert (await said("nodes ban", node.node_id)).banned
    with session(coordinator.data_dir, None, write=True) as connection:
        save_tabs(connection, [TabRecord(TAB, first_seen_s=1.0, last_seen_s=2.0, units=3)])
    (tab,) = await said("tabs")
    assert tab.measured.units_verified == 3
    assert (await said("tabs ban", TAB)).reason
    assert (await said("tabs unban", TAB)).reason is None
    later_s = time.time() + 86_400  # so that every receipt is old, whatever the wall clock did meanwhile
    with monkeypatch.context() as tomorrow:
        tomorrow.setattr(time, "time", lambda: later_s)
        assert (await said("receipts prune", "--older-than", "1s")).chains[0].checkpoint
    (coordinator.data_dir / "signing.key").rename(tmp_path / "lost.key")
    assert (await said("keys new-chain")).endorsed_by is None
