"""A store that does not grow: a week of a fleet's traffic, with the time as an argument."""

import random
import re
from functools import partial
from pathlib import Path

import pytest

from brain_coord.store.receipt_rows import get_checkpoint
from brain_coord.store.records import Outcome, Uptime
from brain_coord.store.retention import DAY_S, OUTCOMES_DAYS, OUTCOMES_KEPT, Retention
from tests.support.receipts import START_S, draft

README = Path("README.md").read_text()


def stated(pattern: str) -> float:
    """A figure of the README."""
    found = re.search(pattern, README)
    assert found is not None, pattern
    return float(found.group(1).replace(",", ""))


def outcome(node: str, at_s: float, kind: str = "customer") -> Outcome:
    return Outcome(node, kind, "completed", at_s, "qwen/qwen2.5-7b-instruct")


async def test_each_node_keeps_its_latest_outcomes_and_no_more(open_store, url):
    store = await open_store(url)
    for number in range(OUTCOMES_KEPT + 50):
        store.add_outcome(outcome("N-1", START_S + number // 2))  # two at each time
    await store.add_outcome(outcome("N-2", START_S))
    assert await Retention(store, 0).tick(START_S + 1000) == 50
    kept = await store.load_outcomes("N-1", 0.0, 10_000)
    assert len(kept) == OUTCOMES_KEPT
    assert kept[-1].at_s == START_S + (OUTCOMES_KEPT + 49) // 2
    assert len(await store.load_outcomes("N-2", 0.0)) == 1
    assert await Retention(store, 0).tick(START_S + 1000) == 0


async def test_old_outcomes_and_days_go_but_none_that_a_score_stands_on(open_store, url):
    store = await open_store(url)
    now_s = START_S + 30 * DAY_S
    for age_days in (1, 6.9, 7.5, 8.1, 20):
        written = store.add_outcome(outcome("N-1", now_s - age_days * DAY_S))
    await written
    today = int(now_s // DAY_S)
    await store.add_uptime([Uptime("N-1", today - age, 10.0, 20.0) for age in (0, 7, 9, 20)])
    await Retention(store, 0).tick(now_s)
    assert [round((now_s - each.at_s) / DAY_S, 1) for each in await store.load_outcomes("N-1", 0.0)] == [7.5, 6.9, 1.0]
    assert [today - each.day for each in await store.load_uptime(0)] == [7, 0]


async def test_receipts_are_kept_for_as_long_as_the_operator_says(open_store, url):
    store = await open_store(url)
    for number in range(1, 11):
        await store.append_receipt(draft(number, time_s=START_S + number * DAY_S))
    assert await Retention(store, 0).tick(START_S + 1000 * DAY_S) == 0
    assert await Retention(store, 3).tick(START_S + 10.5 * DAY_S) == 7
    left = [each.seq async for each in store.export_receipts()]
    assert left == [8, 9, 10]
    assert (await store.read(partial(get_checkpoint, chain=store.chain))).seq == 7


async def test_what_several_coordinators_share_is_pruned_by_one(open_store, url):
    store = await open_store(url)
    await store.add_outcome(outcome("N-1", START_S))
    assert await Retention(store, 1, shared_is_ours=lambda: False).tick(START_S + 100 * DAY_S) == 0
    assert await Retention(store, 1).tick(START_S + 100 * DAY_S) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_week_of_a_fleets_traffic_stays_within_the_stated_size(open_store, data_dir):
    """A hundredth of 1,000 nodes, each with six requests an hour: hour by hour for a week, receipts kept for two days."""
    nodes, an_hour, days = [f"N-{number:016X}" for number in range(10)], 6, 2
    store = await open_store(None)
    retention, rng = Retention(store, days), random.Random(1)
    receipt_bytes, outcome_bytes = stated(r"about ([\d,]+) bytes a receipt"), stated(r"about ([\d,]+) bytes an outcome")
    sizes, number = [], 0
    for hour in range(7 * 24):
        began_s = START_S + hour * 3600
        writes = []
        for node in nodes:
            for _ in range(an_hour):
                number += 1
                at_s = began_s + rng.uniform(0, 3600)
                writes.append(store.append_receipt(draft(number, time_s=at_s, node_id=node)))
                store.add_outcome(outcome(node, at_s))
            last = store.add_outcome(outcome(node, began_s, "canary"))
        await store.add_uptime([Uptime(node, int(began_s // DAY_S), 3600.0, 3600.0) for node in nodes])
        for write in writes:
            await write
        await last
        await retention.tick(began_s + 3600)
        if hour % 24 == 23:
            sizes.append(sum(each.stat().st_size for each in data_dir.iterdir() if each.name.startswith("coord.db")))
    receipts = len(nodes) * an_hour * 24 * (days + 1)  # the day that is being written included
    outcomes = len(nodes) * min(OUTCOMES_KEPT + an_hour + 1, (an_hour + 1) * 24 * OUTCOMES_DAYS)
    most_bytes = receipts * receipt_bytes + outcomes * outcome_bytes + 2**20
    assert max(sizes) <= most_bytes, (sizes, most_bytes)
    assert max(sizes) >= most_bytes / 4, "the stated figures are those of a real store, not of anything"
    assert sizes[-1] <= 1.05 * sizes[days], "after the first days it grows no more"


def test_a_clock_that_is_years_ahead_for_a_moment_makes_nothing_old():
    retention = Retention(None, 400)
    year_s = 365 * DAY_S
    assert retention.steady(START_S, 0.0) == START_S
    assert retention.steady(START_S + 60 * year_s, 600.0) == START_S + 600.0
    assert retention.steady(START_S + 1200.0, 1200.0) == START_S + 1200.0
    assert retention.steady(START_S + year_s, 1800.0) == START_S + 1800.0
    assert retention.steady(START_S + year_s + 600.0, 2400.0) == START_S + year_s + 600.0, "it stays there"
    assert retention.steady(START_S + 3000.0, 3000.0) == START_S + 3000.0, "back at once"
