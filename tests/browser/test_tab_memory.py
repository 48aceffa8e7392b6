"""What is remembered of a tab over a restart of the coordinator, and the operator's word about it. No browser is needed."""

import asyncio
import contextlib
import json
import re
import time

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from brain_coord.browser.tab import LAST_WAY_BACK_S
from brain_coord.browser.tab_memory import _strikes
from brain_coord.cli.shapes import SHAPES
from brain_coord.store.records import TabRecord
from brain_node.contract.identity import Identity
from tests.browser.test_lend import hello_of
from tests.support.coordinator import brain_coord
from tests.support.in_process import coordinator_inside
from tests.support.schemas import hold


@contextlib.asynccontextmanager
async def joined(url, identity):
    """A tab's link, past its hello; the first answer is in `answer`."""
    async with connect(f"{url.replace('http', 'ws')}/browser/v1/link", origin=url) as link:
        await link.send(hello_of(identity, json.loads(await link.recv())))
        link.answer = json.loads(await link.recv())
        yield link


async def command(data_dir, *arguments):
    done = await asyncio.to_thread(brain_coord, "tabs", *arguments, "--data-dir", str(data_dir), "--json")
    assert done.returncode == 0, done.stderr
    hold(SHAPES, " ".join(["tabs", *arguments[:1]]), done.stdout)
    return json.loads(done.stdout)


async def test_what_a_tab_was_caught_at_outlives_a_restart(tmp_path):
    identity = Identity.generate()
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity) as link:
        assert link.answer["type"] == "welcome"
        tabs = inside.coordinator.browser.tabs
        tab = tabs.get(identity.node_id)
        tab.verified.units, tab.verified.tokens = 7, 11
        tabs.outcome(tab, "completed")
        await tabs.caught(tab, "the product is wrong")
        until = tab.strikes.until
    (listed,) = await command(tmp_path)
    assert (listed["node_id"], listed["reason"]) == (identity.node_id, "the product is wrong")
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity):
        tab = inside.coordinator.browser.tabs.get(identity.node_id)
        assert tab.strikes.count == 1
        assert tab.strikes.until == pytest.approx(until, abs=5)
        assert (tab.verified.units, tab.verified.tokens, tab.verified.refused) == (7, 11, 1)
        assert [each.result for each in tab.standing.done] == ["completed", "failed"]
        assert tab.view(time.monotonic(), time.time())["state"] == "DEGRADED"
        await inside.coordinator.browser.tabs.caught(tab, "again")
        assert tab.strikes.until - time.monotonic() > 9 * 60, "the second time counts double, restart or not"


async def test_a_banned_tab_is_told_and_stays_away_until_the_ban_is_lifted(tmp_path):
    identity, other = Identity.generate(), Identity.generate()
    async with (
        coordinator_inside(tmp_path) as inside,
        joined(inside.url, identity) as link,
        joined(inside.url, other),
    ):
        view = await command(tmp_path, "ban", identity.node_id[:9], "--reason", "wrong rows")
        assert (view["state"], view["reason"]) == ("OFFLINE", "banned: wrong rows")
        told = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                told.append(json.loads(await link.recv()))
        refused = next(each for each in told if each["type"] == "refused")
        assert (refused["code"], refused["retry"]) == ("banned", False)
        assert "wrong rows" in refused["message"]
        async with joined(inside.url, identity) as again:
            assert (again.answer["type"], again.answer["code"]) == ("refused", "banned")
        async with httpx.AsyncClient(trust_env=False) as client:
            page = await client.get(f"{inside.url}/network/tabs/{identity.node_id}")
        assert "banned: wrong rows" in page.text
    async with coordinator_inside(tmp_path) as inside:
        async with joined(inside.url, identity) as again:
            assert again.answer["code"] == "banned", "a restart changes nothing"
        await command(tmp_path, "unban", identity.node_id)
        async with joined(inside.url, identity) as again:
            assert again.answer["type"] == "welcome"
    await command(tmp_path, "ban", identity.node_id)
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity) as again:
        assert again.answer["code"] == "banned", "nor need the coordinator run when the ban is spoken"


async def test_a_ban_through_another_coordinator_on_the_same_store_is_carried_out_here(tmp_path, monkeypatch):
    monkeypatch.setattr("brain_coord.browser.tab_memory.FLUSH_S", 0.1)
    identity = Identity.generate()
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity) as link:
        await inside.coordinator.store.ban_tab(identity.node_id, "elsewhere")  # as another coordinator does
        told = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                told.append(json.loads(await link.recv()))
        assert "elsewhere" in next(each["message"] for each in told if each["type"] == "refused")
        await inside.coordinator.store.ban_tab(identity.node_id, None)
        async with joined(inside.url, identity) as again:
            assert again.answer["type"] == "welcome"


async def test_every_tab_has_a_page_and_only_those_that_lent_here(tmp_path):
    identity = Identity.generate()
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity) as link:
        assert link.answer["type"] == "welcome"
        async with httpx.AsyncClient(trust_env=False, base_url=inside.url) as client:
            page = await client.get(f"/network/tabs/{identity.node_id}")
            assert page.status_code == 200
            assert "Reliability 70 of 100" in page.text
            assert "UNKNOWN" in page.text
            assert "127.0.0.1" not in re.sub(r'"[^"]*"', "", page.text)
            named_as_node = await client.get(f"/network/nodes/{identity.node_id}")
            assert named_as_node.headers["location"] == f"/network/tabs/{identity.node_id}"
            for stranger in ("N-0000000000000000", "nobody"):
                assert (await client.get(f"/network/tabs/{stranger}")).status_code == 404


async def test_the_operator_bans_a_tab_on_the_page_and_lifts_it_again(tmp_path):
    identity = Identity.generate()
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, identity):
        made = await asyncio.to_thread(brain_coord, "operator", "create", "--data-dir", str(tmp_path), "--json")
        async with httpx.AsyncClient(trust_env=False, base_url=inside.url, follow_redirects=True) as client:
            act = f"/network/operator/tabs/{identity.node_id}"
            assert "Browser tabs" not in (await client.post(f"{act}/ban")).text, "nobody is operator without logging in"
            page = (
                await client.post("/network/operator/login", data={"secret": json.loads(made.stdout)["secret"]})
            ).text
            form = {"csrf": re.search(r'name="csrf" value="([^"]+)"', page).group(1), "reason": "odd"}
            tab = inside.coordinator.browser.tabs.get(identity.node_id)
            assert f"{act}/ban" in page
            assert "banned: odd" in (await client.post(f"{act}/ban", data=form)).text
            assert (tab.banned, tab.connected) == ("odd", False)
            assert (await client.post(f"{act}/unban", data=form)).status_code == 200
            assert tab.banned is None
            for wrong in (f"{act}/praise", "/network/operator/tabs/N-0000000000000000/ban"):
                assert (await client.post(wrong, data=form)).status_code == 404


async def test_a_tab_that_never_did_anything_is_not_written_down(tmp_path):
    async with coordinator_inside(tmp_path) as inside, joined(inside.url, Identity.generate()):
        pass
    assert await command(tmp_path) == []


def test_a_strike_that_another_clock_dated_far_ahead_ends_within_the_longest_wait():
    record = TabRecord("N-1", 0.0, 0.0, strikes=1, strike_reason="wrong", aside_until_s=1e9)
    assert _strikes(record, 0.0).until <= time.monotonic() + LAST_WAY_BACK_S
