"""Weights from a hub on loopback, through the real hub library in the real worker process."""

import asyncio
import json
import os
import resource
import socket
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from brain_node.engine import proc_table, weights
from brain_node.engine.causes import CauseKind
from brain_node.engine.environments import Flavour
from brain_node.engine.fetch import FetchError
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.view import DownloadProgress
from brain_node.engine.weights import Hub, HubModel, fetch_weights, fetched_weights
from tests.support.eventually import eventually
from tests.support.fake_hub import FakeHub, Repository, fake_hub
from tests.support.fake_vllm import FakeVllm, program

MODEL = HubModel("acme/model", "main")
TOKEN = "hf_HUBTESTSECRETabc"
LARGE = os.urandom(3_000_000)


def repository(**wanted) -> Repository:
    files = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors": LARGE,
        "modeling_evil.py": b"print('never')",
        "pytorch_model.bin": b"pickle",
        "original/consolidated.safetensors": b"twice",
        "README.md": b"words",
    }
    return Repository(files, **wanted)


@pytest.fixture
async def served(monkeypatch):
    async with fake_hub(acme__model=repository()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def hub(tmp_path, served: FakeHub) -> Hub:
    return Hub(Path(sys.executable), tmp_path / "data", cache_dir=tmp_path / "cache")


async def fetch(hub: Hub, model: HubModel = MODEL) -> tuple[Path, list[DownloadProgress]]:
    seen: list[DownloadProgress] = []
    return await fetch_weights(hub, model, seen.append), seen


async def fault(hub: Hub, model: HubModel = MODEL):
    with pytest.raises(FetchError) as caught:
        await fetch(hub, model)
    return caught.value.cause


async def test_weights_come_whole_and_nothing_that_could_run(hub):
    folder, seen = await fetch(hub)
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == LARGE
    last = seen[-1]
    assert last.fraction == 1.0
    assert last.done_bytes == last.total_bytes == len(LARGE) + 2


async def test_a_second_time_asks_nobody(hub, served):
    folder, _ = await fetch(hub)
    served.asked.clear()
    again, seen = await fetch(hub)
    assert (again, seen, served.asked) == (folder, [], [])
    assert fetched_weights(hub, MODEL) == folder


async def test_a_file_that_is_no_longer_whole_is_fetched_again(hub):
    folder, _ = await fetch(hub)
    blob = (folder / "model.safetensors").resolve()
    blob.unlink()
    assert fetched_weights(hub, MODEL) is None
    folder, _ = await fetch(hub)
    assert (folder / "model.safetensors").read_bytes() == LARGE


async def test_a_cancelled_download_ends_at_once_and_goes_on_where_it_was(hub, served):
    served.pause_after = 2_000_000
    seen: list[DownloadProgress] = []
    running = asyncio.create_task(fetch_weights(hub, MODEL, seen.append))
    await eventually(lambda: served.sent_bytes >= 2_000_000)
    await eventually(lambda: seen and seen[-1].done_bytes > 0)
    running.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
    assert fetched_weights(hub, MODEL) is None
    assert 0 < seen[-1].fraction < 1
    served.pause_after = None
    before = served.sent_bytes
    folder, _ = await fetch(hub)
    assert served.ranges == ["bytes=1048576-"], "it went on where it was"
    assert served.sent_bytes - before < len(LARGE)
    assert (folder / "model.safetensors").read_bytes() == LARGE
    assert not list(hub.cache_dir.rglob("*incomplete"))


async def test_half_a_file_that_was_damaged_is_noticed_and_fetched_anew(hub, served):
    served.pause_after = 2_000_000
    running = asyncio.create_task(fetch_weights(hub, MODEL, lambda _: None))
    await eventually(lambda: [half for half in halves(hub) if half.stat().st_size > 1_000_000])
    running.cancel()
    await asyncio.wait([running])
    served.pause_after = None
    half = max(halves(hub), key=lambda file: file.stat().st_size)
    half.write_bytes(bytes(half.stat().st_size))
    cause = await fault(hub)
    assert cause.kind is CauseKind.DOWNLOAD_FAILED
    assert "damaged" in cause.message
    folder, _ = await fetch(hub)
    assert (folder / "model.safetensors").read_bytes() == LARGE


async def test_a_small_file_that_a_crash_of_the_machine_left_without_content_is_fetched_anew(hub):
    folder, _ = await fetch(hub)
    config = (folder / "config.json").read_bytes()
    blob = (folder / "config.json").resolve()
    blob.unlink()
    blob.with_name(f"{blob.name}.1a2b.incomplete").write_bytes(bytes(len(config)))
    assert "damaged" in (await fault(hub)).message
    folder, _ = await fetch(hub)
    assert (folder / "config.json").read_bytes() == config


async def test_a_download_ends_with_the_agent_that_wanted_it(hub, served):
    served.pause_after = 2_000_000
    code = (
        "import asyncio, sys; from pathlib import Path; from brain_node.engine.weights import *\n"
        "hub = Hub(Path(sys.executable), Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))\n"
        "asyncio.run(fetch_weights(hub, HubModel('acme/model', 'main'), lambda _: None))"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(hub.data_dir), str(hub.cache_dir))
    await eventually(lambda: served.sent_bytes >= 2_000_000)
    (worker,) = [facts for facts in proc_table.all_processes() if child_of(agent.pid, facts.pid)]
    agent.kill()
    await agent.wait()
    await eventually(lambda: not (facts := proc_table.facts_of(worker.pid)) or not facts.alive)


def child_of(parent: int, pid: int) -> bool:
    try:
        return psutil.Process(pid).ppid() == parent
    except psutil.Error:
        return False


def halves(hub: Hub) -> list[Path]:
    return list(hub.cache_dir.rglob("*.incomplete"))


async def test_a_broken_connection_is_got_over_by_the_library_or_by_a_later_try(hub, served):
    served.cut_after = 1_000_000
    for _ in range(3):
        try:
            folder, _ = await fetch(hub)
            break
        except FetchError as error:
            assert error.cause.kind is CauseKind.DOWNLOAD_FAILED
    assert (folder / "model.safetensors").read_bytes() == LARGE


@pytest.mark.case("B-10")
async def test_a_disk_without_room_is_told_before_anything_is_fetched(hub, served):
    looked: list[Path] = []

    def free(path: Path) -> int:
        looked.append(path)
        return 1 << 20

    cause = await fault(replace(hub, free_bytes=free, spare_bytes=0))
    assert cause.kind is CauseKind.DISK_FULL
    assert cause.figures == {"need_bytes": len(LARGE) + 2, "free_bytes": 1 << 20}
    assert str(hub.cache_dir) in cause.message
    assert looked == [hub.cache_dir.parent]
    assert not any("/resolve/" in path for path in served.asked)


@pytest.mark.case("B-10")
async def test_a_model_larger_than_the_disk_is_refused_by_the_disks_own_figures(hub, served):
    served.repositories["acme/model"] = repository(claimed_bytes={"model.safetensors": 1 << 50})
    cause = await fault(hub)
    assert cause.kind is CauseKind.DISK_FULL
    assert cause.figures["need_bytes"] == (1 << 50) + 2
    assert 0 < cause.figures["free_bytes"] < 1 << 50
    assert "1048576.0 GiB more" in cause.message
    assert not any("/resolve/" in path for path in served.asked)


@pytest.mark.case("B-10")
async def test_a_disk_that_takes_no_more_while_weights_come_is_told(hub, served):
    # The end of the disk is a limit on the size of files: the worker's own write fails, without a disk to fill.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        cause = await fault(hub)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert cause.kind is CauseKind.DISK_FULL
    assert "filled up" in cause.message
    assert sum(file.stat().st_size for file in halves(hub)) <= 1_000_000
    folder, _ = await fetch(hub)  # and goes on once there is room
    assert (folder / "model.safetensors").read_bytes() == LARGE


@pytest.mark.case("B-10")
async def test_room_is_looked_for_where_the_cache_really_is(hub, tmp_path):
    elsewhere = tmp_path / "big-disk"
    elsewhere.mkdir()
    hub.cache_dir.symlink_to(elsewhere)
    looked: list[Path] = []

    def free(path: Path) -> int:
        looked.append(path)
        return 1 << 40

    await fetch(replace(hub, free_bytes=free))
    assert looked == [elsewhere]


@pytest.mark.case("B-10")
async def test_what_is_there_already_needs_no_room(hub):
    folder, _ = await fetch(hub)
    (hub.data_dir / "weights").rename(hub.data_dir / "aside")
    again, _ = await fetch(replace(hub, free_bytes=lambda path: 0))
    assert again == folder


@pytest.mark.case("B-07")
@pytest.mark.parametrize(
    ("wanted", "token", "kind", "says"),
    [
        ({"gated": True}, None, CauseKind.GATED_MODEL, "HF_TOKEN"),
        ({"gated": True}, TOKEN, CauseKind.GATED_MODEL, "accept the licence"),
        ({"private": True}, None, CauseKind.MISSING_MODEL, "private or gated"),
        ({"private": True}, TOKEN, CauseKind.MISSING_MODEL, "check the name"),
    ],
)
async def test_a_model_we_may_not_have_says_what_to_do(hub, served, wanted, token, kind, says):
    served.repositories["acme/model"] = repository(**wanted)
    cause = await fault(replace(hub, token=token))
    assert cause.kind is kind
    assert says in f"{cause.message}; {cause.advice}"
    assert TOKEN not in repr(cause)


@pytest.mark.case("B-07")
async def test_a_token_that_may_read_opens_a_gated_model_and_is_never_shown(hub, served, tmp_path):
    served.repositories["acme/model"] = repository(gated=True)
    served.readers.add(TOKEN)
    folder, _ = await fetch(replace(hub, token=TOKEN))
    assert (folder / "model.safetensors").read_bytes() == LARGE
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes()


async def test_a_name_or_revision_that_is_not_there_is_missing(hub):
    assert (await fault(hub, HubModel("acme/nothing", "main"))).kind is CauseKind.MISSING_MODEL
    assert (await fault(hub, HubModel("acme/model", "v9"))).kind is CauseKind.MISSING_MODEL
    assert (await fault(hub, HubModel("not a name", "main"))).kind is CauseKind.MISSING_MODEL


async def test_a_hub_that_is_down_is_worth_another_try(hub, served, monkeypatch):
    served.status = 503
    assert (await fault(hub)).kind is CauseKind.DOWNLOAD_FAILED
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    cause = await fault(hub)
    assert cause.kind is CauseKind.DOWNLOAD_FAILED
    assert "acme/model" in cause.message


async def test_a_hub_that_never_answers_is_worth_another_try(hub, monkeypatch):
    monkeypatch.setattr(weights, "_PLAN_LIMIT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        cause = await fault(hub)
    assert cause.kind is CauseKind.DOWNLOAD_FAILED
    assert "within 1 s" in cause.message


async def test_a_repository_without_safetensors_is_not_served(hub, served):
    served.repositories["acme/model"] = Repository({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    assert (await fault(hub)).kind is CauseKind.UNSUPPORTED_MODEL


async def test_an_interpreter_without_the_hubs_library_is_a_broken_install(hub, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert (await fault(replace(hub, python=bare))).kind is CauseKind.BROKEN_INSTALL


async def test_an_engine_waits_for_its_weights_and_shows_how_far_they_are(hub, served, around, tmp_path):
    served.pause_after = 2_000_000
    (tmp_path / "fake").mkdir()
    words = program(tmp_path / "fake", FakeVllm(env_to=str(tmp_path / "seen.json")))
    spec = EngineSpec("test/model", Path(), words, Flavour.CPU)
    engine = EngineSupervisor(spec, around, fetch=lambda told: fetch_weights(hub, MODEL, told))
    seen: list[str] = []
    engine.subscribe(lambda view: seen.append(view.sentence))
    await engine.start()
    await eventually(lambda: any(said.startswith("downloading, 35% of 0.0 GB") for said in seen))
    await engine.stop()
    assert engine.view().state is State.STOPPED
    served.pause_after = None
    await engine.start()
    assert await engine.wait_for_state(State.READY, timeout_s=30)
    argv = json.loads((tmp_path / "seen.json").read_text())["argv"]
    assert argv[argv.index("--model") + 1] == str(fetched_weights(hub, MODEL))
    await engine.stop()


async def test_a_gated_model_stops_its_engine_without_a_loop(hub, served, around, tmp_path):
    served.repositories["acme/model"] = repository(gated=True)
    spec = EngineSpec("test/model", Path(), ("never",), Flavour.CPU)
    engine = EngineSupervisor(spec, around, fetch=lambda told: fetch_weights(hub, MODEL, told))
    await engine.start()
    assert await engine.wait_for_state(State.FAILED, timeout_s=30)
    assert "HF_TOKEN" in engine.view().sentence
    assert engine.view().starts == 0
    await engine.stop()
