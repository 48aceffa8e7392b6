"""Nodes are remembered between sessions: same key, same history."""

import dataclasses

from brain_coord.store.records import Benchmark, NodeRecord, Outcome, Uptime

NODE = NodeRecord("N-3A4F", b"\1" * 32, 100.0, 100.0, operator=False, label="attic", region="eu")
BENCHMARK = Benchmark("N-3A4F", "qwen/qwen2.5-7b", 41.5, 88.0, "PRO", "f1", 200.0)


async def test_a_node_is_remembered(store):
    assert await store.upsert_node(NODE) == NODE
    assert await store.get_node("N-3A4F") == NODE
    assert await store.get_node("N-0000") is None


async def test_a_node_that_comes_back_keeps_its_first_time_and_what_the_operator_decided(store):
    await store.upsert_node(NODE)
    await store.set_ban("N-3A4F", "canned answers")
    await store.set_trust("N-3A4F", True)
    await store.set_drain("N-3A4F", True)
    again = await store.upsert_node(dataclasses.replace(NODE, first_seen_s=900.0, last_seen_s=900.0, region="us"))
    assert (again.first_seen_s, again.last_seen_s, again.region) == (100.0, 900.0, "us")
    assert (again.banned, again.banned_reason, again.trusted, again.draining) == (True, "canned answers", True, True)


async def test_the_operators_decisions_can_be_taken_back(store):
    await store.upsert_node(NODE)
    await store.set_ban("N-3A4F", "why")
    assert await store.set_ban("N-3A4F", None)
    assert not (await store.get_node("N-3A4F")).banned
    assert not await store.set_ban("N-0000", "nobody")


async def test_nodes_are_listed_by_id(store):
    for name in ("N-2", "N-1", "N-3"):
        await store.upsert_node(dataclasses.replace(NODE, node_id=name))
    await store.touch_nodes({"N-1": 5.0, "N-3": 6.0, "N-9": 7.0})
    assert [(node.node_id, node.last_seen_s) for node in await store.list_nodes()] == [
        ("N-1", 5.0),
        ("N-2", 100.0),
        ("N-3", 6.0),
    ]


async def test_the_latest_benchmark_of_each_model_counts(store):
    await store.save_benchmark(BENCHMARK)
    await store.save_benchmark(dataclasses.replace(BENCHMARK, model="a-mock", compute_class=None, first_output_ms=None))
    newer = dataclasses.replace(BENCHMARK, decode_tok_s=50.0, fingerprint="f2", measured_s=300.0)
    await store.save_benchmark(newer)
    found = await store.load_benchmarks("N-3A4F")
    assert [benchmark.model for benchmark in found] == ["a-mock", "qwen/qwen2.5-7b"]
    assert found[1] == newer
    assert await store.load_benchmarks() == found
    assert await store.load_benchmarks("N-0000") == []


async def test_the_last_outcomes_of_a_node_come_oldest_first(store):
    for number in range(250):
        future = store.add_outcome(Outcome("N-3A4F", "customer", "completed", float(number), "m", f"r-{number}"))
    store.add_outcome(Outcome("N-9", "canary", "failed", 249.0))
    await future
    found = await store.load_outcomes("N-3A4F", since_s=0.0)
    assert [outcome.at_s for outcome in found] == [float(number) for number in range(50, 250)]
    assert found[-1] == Outcome("N-3A4F", "customer", "completed", 249.0, "m", "r-249")
    assert len(await store.load_outcomes("N-3A4F", since_s=240.0)) == 10


async def test_uptime_adds_up_by_day(store):
    await store.add_uptime([Uptime("N-1", 7, 60.0, 60.0), Uptime("N-2", 7, 0.0, 60.0)])
    await store.add_uptime([Uptime("N-1", 7, 30.0, 60.0), Uptime("N-1", 8, 1.0, 1.0)])
    await store.add_uptime([])
    assert await store.load_uptime(7) == [
        Uptime("N-1", 7, 90.0, 120.0),
        Uptime("N-1", 8, 1.0, 1.0),
        Uptime("N-2", 7, 0.0, 60.0),
    ]
    assert await store.load_uptime(8, "N-1") == [Uptime("N-1", 8, 1.0, 1.0)]


async def test_old_outcomes_and_days_are_forgotten_and_new_ones_stay(store):
    for at_s in range(2500):
        last = store.add_outcome(Outcome("N-1", "customer", "completed", float(at_s) * 86_400))
    await last
    await store.add_uptime([Uptime("N-1", 3, 1.0, 1.0), Uptime("N-1", 2400, 1.0, 1.0)])
    assert await store.prune(outcomes_before_s=2400 * 86_400.0) == 2400
    assert len(await store.load_outcomes("N-1", 0.0, limit=5000)) == 100
    assert [day.day for day in await store.load_uptime(0)] == [2400]
