"""Browser tabs are remembered between sessions and over restarts: what they were caught at, and the operator's word."""

import dataclasses

from brain_coord.store import tabs
from brain_coord.store.records import TabRecord

TAB = TabRecord("N-7A4F", 100.0, 200.0, None, 2, "the product is wrong", 900.0, 7, 2.0**60, 11, 2)


async def test_a_tab_is_remembered_as_it_is_now_and_keeps_its_first_time(store):
    await store.save_tabs([TAB, dataclasses.replace(TAB, tab_id="N-1")])
    assert await store.get_tab("N-7A4F") == TAB
    later = dataclasses.replace(TAB, first_seen_s=300.0, last_seen_s=300.0, strikes=3, tokens=99)
    await store.save_tabs([later])
    assert await store.get_tab("N-7A4F") == dataclasses.replace(later, first_seen_s=100.0)
    assert await store.get_tab("N-0000") is None
    await store.save_tabs([])


async def test_a_ban_outlives_what_is_saved_later_and_can_be_lifted(store):
    await store.save_tabs([TAB])
    await store.ban_tab("N-7A4F", "by the operator")
    await store.ban_tab("N-9", "never seen here")
    await store.save_tabs([dataclasses.replace(TAB, tokens=12)])
    assert (await store.get_tab("N-7A4F")).banned_reason == "by the operator"
    assert (await store.get_tab("N-9")).banned_reason == "never seen here"
    await store.ban_tab("N-7A4F", None)
    assert (await store.get_tab("N-7A4F")).banned_reason is None


async def test_old_tabs_are_forgotten_unless_they_are_banned(store):
    await store.save_tabs([dataclasses.replace(TAB, tab_id=f"N-{number}", last_seen_s=number) for number in range(10)])
    await store.ban_tab("N-3", "by the operator")
    assert [tab.tab_id for tab in await store.read(lambda connection: tabs.list_tabs(connection, 2))] == ["N-9", "N-8"]
    assert await store.prune(outcomes_before_s=5.0) == 4
    assert await store.get_tab("N-3") is not None
    assert await store.get_tab("N-4") is None


async def test_how_many_jobs_a_node_bore_is_remembered(store):
    from tests.store.test_nodes import NODE

    await store.upsert_node(NODE)
    assert await store.set_slots_borne(NODE.node_id, 6)
    again = await store.upsert_node(dataclasses.replace(NODE, last_seen_s=500.0))
    assert again.slots_borne == 6
