"""Failures of our own parts: the store away, the coordinator restarted or killed with streams open."""

import asyncio
import contextlib
import json
import signal
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.coordinator import CoordinatorProcess, brain_coord, eventually
from tests.support.postgres import PostgresServer
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawJob, RawNode, answer, chunk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CHAT = {"model": "brain/mock", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"


async def ready(coordinator: CoordinatorProcess, node: RawNode) -> None:
    await asyncio.to_thread(
        coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE", active=0
    )


async def ask(coordinator: CoordinatorProcess, key: str):
    async with RawClient(coordinator.url, key) as client:
        return await client.exchange("POST", PATH, CHAT)


def receipts_of(url: str, key: str) -> list[dict[str, object]]:
    reply = httpx.get(f"{url}/v1/receipts", headers={"Authorization": f"Bearer {key}"}, trust_env=False)
    return [json.loads(line) for line in reply.text.splitlines()]


def state_of(url: str) -> str:
    """Whether receipts are being recorded, and where."""
    return str(httpx.get(f"{url}/readyz", trust_env=False).json()["receipts"]["state"])


async def long_answer(job: RawJob) -> None:
    """An answer that goes on until it is cancelled."""
    await job.accept()
    await job.head()
    number = 0
    while not job.cancelled.is_set():
        await job.event(chunk(f"word{number} "))
        number += 1
        await asyncio.sleep(0.02)
    await job.end(ok=False, cause="cancelled")


async def test_streams_that_outlast_the_drain_get_one_clean_error_and_the_node_cancels(tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join", "--drain-timeout", "1") as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            await ready(coordinator, node)
            node.script = long_answer
            async with RawClient(coordinator.url, key) as client:
                await client.post(PATH, CHAT)
                await client.read_until(b"word5")
                stopping = asyncio.create_task(asyncio.to_thread(coordinator.program.stop))
                reply = await client.answer()
                assert reply.whole
                assert [event["error"]["code"] for event in reply.data if "error" in event] == ["draining"]
                assert "[DONE]" not in reply.data
            assert await stopping == 0
            assert node.jobs[-1].cancelled.is_set()
        coordinator.restart()
        bodies = [line["body"] for line in receipts_of(coordinator.url, key)]
        assert [body["outcome"] for body in bodies] == ["incomplete"]


async def test_while_draining_new_requests_are_refused_and_running_ones_finish(tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join", "--drain-timeout", "20") as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            await ready(coordinator, node)
            go = asyncio.Event()

            async def waits(job: RawJob) -> None:
                await go.wait()
                await answer(job)

            node.script = waits
            async with RawClient(coordinator.url, key) as running, RawClient(coordinator.url, key) as late:
                before = len(node.jobs)  # the benchmark's
                await running.post(PATH, CHAT)
                await asyncio.to_thread(eventually, lambda: len(node.jobs) > before)
                coordinator.program.send(signal.SIGTERM)
                await asyncio.to_thread(coordinator.program.wait_for, '"stopping"')
                refused = await late.exchange("POST", PATH, CHAT)
                assert refused.status == 503
                assert refused.json["error"]["code"] == "draining"
                assert refused.headers["retry-after"]
                go.set()
                assert (await running.answer()).text == "one two three "
            assert await asyncio.to_thread(coordinator.program.wait) == 0


@pytest.mark.timeout(900)
async def test_of_10000_answers_whose_end_was_seen_five_kills_of_the_coordinator_lose_no_receipt(tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as coordinator:
        key = coordinator.key("paid")
        ended: set[str] = set()
        for killed in range(1, 6):
            async with RawNode(coordinator.url, slots=16) as node:
                await ready(coordinator, node)
                enough = asyncio.Event()

                async def keep_asking(wanted: int, enough: asyncio.Event) -> None:
                    async with RawClient(coordinator.url, key) as client:
                        while (reply := await client.exchange("POST", PATH, CHAT)).whole:
                            assert "[DONE]" in reply.data
                            ended.add(reply.headers["x-brain-receipt"])
                            if len(ended) >= wanted:
                                enough.set()

                asking = [asyncio.create_task(keep_asking(2000 * killed, enough)) for _ in range(12)]
                await asyncio.wait({asyncio.create_task(enough.wait()), *asking}, return_when=asyncio.FIRST_COMPLETED)
                coordinator.program.send(signal.SIGKILL)
                ends = await asyncio.gather(*asking, return_exceptions=True)
                assert all(end is None or isinstance(end, OSError) for end in ends), ends
            await asyncio.to_thread(coordinator.program.wait)
            await asyncio.to_thread(coordinator.restart)
        assert len(ended) >= 10_000
        lines = await asyncio.to_thread(receipts_of, coordinator.url, key)
        assert ended <= {line["body"]["id"] for line in lines}
        file = tmp_path / "receipts.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert (await asyncio.to_thread(brain_coord, "receipts", "verify", str(file))).returncode == 0
        lines[4321]["body"]["outcome"] = "another"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        broken = await asyncio.to_thread(brain_coord, "receipts", "verify", str(file))
        assert broken.returncode != 0
        assert "line 4322" in broken.stdout


@contextlib.contextmanager
def held_database(data_dir: Path):
    """Another program that holds the embedded database's write lock."""
    connection = sqlite3.connect(data_dir / "coord.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_while_the_store_is_away_answers_go_on_and_their_receipts_are_written_later(tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            await ready(coordinator, node)
            assert (await ask(coordinator, key)).text == "one two three "
            with held_database(coordinator.data_dir):
                during = await ask(coordinator, key)
                assert during.text == "one two three "
                assert await asyncio.to_thread(state_of, coordinator.url) == "spooling"
            await asyncio.to_thread(eventually, lambda: state_of(coordinator.url) == "ok")
            lines = await asyncio.to_thread(receipts_of, coordinator.url, key)
            assert during.headers["x-brain-receipt"] in {line["body"]["id"] for line in lines}


async def test_an_operator_may_choose_to_refuse_what_cannot_be_recorded(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[store]\non_failure = "refuse"\ntimeout_s = 1.0\n[join]\ntoken_required = false\n')
    with CoordinatorProcess(tmp_path / "coord", "--config", str(config)) as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            await ready(coordinator, node)
            assert (await ask(coordinator, key)).text == "one two three "
            with held_database(coordinator.data_dir):
                replies = [await ask(coordinator, key) for _ in range(2)]
            for reply in replies:
                assert "[DONE]" not in reply.data if reply.status == 200 else True
                error = next(event for event in reply.data if "error" in event) if reply.status == 200 else reply.json
                assert error["error"]["code"] == "store_unavailable"


LEAKY = """
[store]
on_failure = "refuse"
timeout_s = 0.5
[join]
token_required = false
[deadlines]
first_output_s = 0.5
[breaker]
faults = 1000
[queue]
wait_s = 5.0
"""


async def silent(job: RawJob) -> None:
    """A job that is taken, and of which nothing more is heard until it is cancelled."""
    await job.accept()
    await job.cancelled.wait()
    await job.end(ok=False, cause="cancelled")


async def dies(job: RawJob) -> None:
    await job.accept()
    await job.drop()


@pytest.mark.case("E-01")
async def test_of_requests_that_end_in_any_way_nothing_stays_counted(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(LEAKY)
    with CoordinatorProcess(tmp_path / "coord", "--config", str(config)) as coordinator:
        key = coordinator.key("paid")

        async def leaves(after_events: int) -> None:
            async with RawClient(coordinator.url, key) as client:
                await client.post(PATH, CHAT)
                while not client.reply.whole and len(client.reply.data if client.reply.raw else ()) < after_events:
                    assert await client.read_some()
                if not after_events:
                    await asyncio.sleep(0.1)
                client.reset()

        def gauges() -> dict[str, float]:
            lines = httpx.get(f"{coordinator.url}/metrics", trust_env=False).text.splitlines()
            return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

        def idle() -> bool:
            now = gauges()
            counts = ("brain_requests_running", "brain_requests_waiting", 'brain_slots{kind="active"}')
            return all(now[name] == 0 for name in counts) and all(not node["active"] for node in coordinator.nodes())

        @contextlib.asynccontextmanager
        async def two_nodes(script):
            async with RawNode(coordinator.url, slots=8) as one, RawNode(coordinator.url, slots=8) as two:
                await ready(coordinator, one)
                await ready(coordinator, two)
                one.script = two.script = script
                yield one, two
                await asyncio.to_thread(eventually, idle)

        async with two_nodes(answer):
            before_mib = memory_mib(coordinator)
            with held_database(coordinator.data_dir):
                unrecorded = await asyncio.gather(*(ask(coordinator, key) for _ in range(20)))
            assert all(b"store_unavailable" in reply.body for reply in unrecorded)
            await asyncio.to_thread(eventually, lambda: state_of(coordinator.url) == "ok")
        for script, ending in (
            (silent, partial(leaves, 0)),
            (long_answer, partial(leaves, 2)),
            (dies, partial(ask, coordinator, key)),
            (silent, partial(ask, coordinator, key)),
        ):
            async with two_nodes(script):
                await asyncio.gather(*(ending() for _ in range(40)))
        async with two_nodes(long_answer) as (one, two):
            leaving = [asyncio.create_task(ask(coordinator, key)) for _ in range(20)]
            await asyncio.to_thread(eventually, lambda: gauges()['brain_slots{kind="active"}'] == 16)
            await two.leave()
            one.script = answer
            for job in one.jobs:
                job.cancelled.set()
            await asyncio.gather(*leaving)
        async with two_nodes(answer):
            again = await asyncio.gather(*(ask(coordinator, key) for _ in range(16)))
            assert [reply.text for reply in again] == ["one two three "] * 16
        assert memory_mib(coordinator) < before_mib + 32


def memory_mib(coordinator: CoordinatorProcess) -> float:
    return float(psutil.Process(coordinator.program.pid).memory_info().rss / 2**20)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


def test_what_reads_the_store_says_that_it_is_away_and_no_fault_is_logged(tmp_path, postgres):
    environment = {"BRAIN_COORD_DATABASE_URL": postgres.create_database()}
    with CoordinatorProcess(tmp_path / "coord", env=environment) as coordinator:
        sent = {"authorization": f"Bearer {coordinator.key()}"}
        paths = ["receipts", "receipts?format=csv", "receipts/r-1", "receipts/r-1/verify", "signer"]
        with httpx.Client(base_url=f"{coordinator.url}/v1/", headers=sent, trust_env=False) as client:
            assert [client.get(path).status_code for path in paths] == [200, 200, 404, 404, 200]
            assert client.get("receipts/%00").status_code == 404
            postgres.kill()
            replies = [client.get(path) for path in paths]
        assert [reply.status_code for reply in replies] == [503] * len(paths)
        assert {reply.json()["error"]["code"] for reply in replies} == {"store_unavailable"}
        assert {reply.headers["retry-after"] for reply in replies} == {"5"}
        assert not [line for line in coordinator.program.lines if "Traceback" in line]


async def test_a_postgresql_server_that_restarts_costs_no_answer_and_no_receipt(tmp_path, postgres):
    environment = {"BRAIN_COORD_DATABASE_URL": postgres.create_database()}
    with CoordinatorProcess(tmp_path / "coord", "--open-join", env=environment) as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            await ready(coordinator, node)
            seen = [await ask(coordinator, key)]
            postgres.kill()
            seen += [await ask(coordinator, key) for _ in range(3)]
            await asyncio.to_thread(postgres.start)
            seen.append(await ask(coordinator, key))
            assert [reply.text for reply in seen] == ["one two three "] * 5
            wanted = {reply.headers["x-brain-receipt"] for reply in seen}

            def recorded() -> bool:
                try:
                    return wanted <= {line["body"]["id"] for line in receipts_of(coordinator.url, key)}
                except (json.JSONDecodeError, KeyError):
                    return False

            await asyncio.to_thread(eventually, recorded, 60.0)
