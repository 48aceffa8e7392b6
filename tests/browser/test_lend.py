"""`/lend` in Chromium: nothing before the button, an identity that cannot be copied, and owners who stay in charge."""

import base64
import json
import re

import httpx
import pytest
from playwright.async_api import expect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from brain_node.contract.identity import Identity
from tests.support.browser import serious_faults
from tests.support.tabs import eventually, lent_tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def tab_view(place, tab_id):
    async with place.api() as client:
        reply = await client.get(f"/v1/tabs/{tab_id}")
        return reply.json() if reply.status_code == 200 else None


async def wait_for(place, tab_id, state):
    async def there():
        view = await tab_view(place, tab_id)
        return view is not None and view["state"] == state

    await eventually(there)


async def test_nothing_runs_and_no_key_is_made_before_the_button(place):
    async with lent_tab(place.browser, place.url, start=False) as tab:
        sockets = []
        tab.page.on("websocket", lambda socket: sockets.append(socket.url))
        await expect(tab.page.locator("#start")).to_be_enabled()
        await tab.page.wait_for_load_state("networkidle")
        assert sockets == []
        assert await tab.page.evaluate("indexedDB.databases()") == []
        assert await tab.text("now") == "Nothing runs."
        assert await serious_faults(tab.page) == []

        await tab.lend()
        await tab.measured()
        assert len(sockets) == 3, "a link and two slots"
        assert all(re.fullmatch(r"ws://[^/]+/browser/v1/(link|slot)", url) for url in sockets), "no secret in a URL"
        assert tab.faults == []
        assert tab.hosts == {place.url.split("//")[1]}
        assert await serious_faults(tab.page) == []


async def test_the_key_stays_in_the_browser_and_the_tab_keeps_its_name(place):
    async with lent_tab(place.browser, place.url) as tab:
        before = await tab.node_id
        assert re.fullmatch(r"N-[0-9A-F]{16}", before)
        stolen = await tab.page.evaluate(
            """async () => {
              const opening = indexedDB.open("brain-lend", 1);
              const database = await new Promise((done) => { opening.onsuccess = () => done(opening.result); });
              const request = database.transaction("keys").objectStore("keys").get("tab");
              const pair = await new Promise((done) => { request.onsuccess = () => done(request.result); });
              return crypto.subtle.exportKey("pkcs8", pair.privateKey).then(() => "stolen", (error) => error.name);
            }"""
        )
        assert stolen == "InvalidAccessError"
        await tab.page.reload()
        await tab.lend()
        await tab.measured()
        assert await tab.node_id == before


async def test_pause_and_a_hidden_tab_take_no_work_and_come_back(place):
    async with lent_tab(place.browser, place.url) as tab:
        tab_id = await tab.node_id
        await tab.page.locator("#pause").click()
        await wait_for(place, tab_id, "DRAINING")
        assert await tab.text("held") == "Paused by you."
        async with place.api() as client:
            reply = await client.post("/v1/compute/matmul", json={"rows": 8, "inner": 8, "columns": 8, "seed": 1})
            assert reply.status_code == 503
            assert "draining" in reply.json()["error"]["message"]
        await tab.page.locator("#pause").click()
        await wait_for(place, tab_id, "ONLINE")
        hide = (
            "(hidden) => { Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        await tab.page.evaluate(hide, True)
        await wait_for(place, tab_id, "DRAINING")
        await tab.page.evaluate(hide, False)
        await wait_for(place, tab_id, "ONLINE")
        await tab.page.locator("#stop").click()
        await wait_for(place, tab_id, "OFFLINE")


async def test_on_battery_a_tab_takes_no_work_until_it_is_charged_or_its_owner_says_so(place):
    battery = (
        "globalThis.battery = Object.assign(new EventTarget(), { charging: false });"
        " Object.defineProperty(navigator, 'getBattery', { value: async () => battery })"
    )
    async with lent_tab(place.browser, place.url, start=False) as tab:
        await tab.page.add_init_script(battery)
        await tab.page.reload()
        await tab.lend()
        await expect(tab.page.locator("#held")).to_contain_text("battery")
        tab_id = await tab.node_id
        await wait_for(place, tab_id, "DRAINING")
        await tab.page.evaluate("battery.charging = true; battery.dispatchEvent(new Event('chargingchange'))")
        await wait_for(place, tab_id, "ONLINE")
        await tab.page.evaluate("battery.charging = false; battery.dispatchEvent(new Event('chargingchange'))")
        await wait_for(place, tab_id, "DRAINING")
        await tab.page.locator("input[name=battery]").uncheck()
        await wait_for(place, tab_id, "ONLINE")


async def test_a_duty_limit_makes_the_tab_rest_after_work(place):
    async with lent_tab(place.browser, place.url) as tab, place.api() as client:
        await tab.page.locator("select[name=duty]").select_option("25")
        body = {"rows": 128, "inner": 512, "columns": 128, "seed": 1}
        assert (await client.post("/v1/compute/matmul", json=body)).status_code == 200
        await expect(tab.page.locator("#held")).to_contain_text("Rests")
        await wait_for(place, await tab.node_id, "ONLINE")


async def test_a_browser_without_webgpu_is_told_so(place):
    context = await place.browser.new_context()
    try:
        page = await context.new_page()
        await page.add_init_script("Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined })")
        await page.goto(f"{place.url}/lend")
        await expect(page.locator("#state")).to_contain_text("This browser has no WebGPU")
        await page.locator("#start").click()
        await expect(page.locator("#state")).to_contain_text("This browser has no WebGPU")
    finally:
        await context.close()


async def test_a_tab_that_lies_in_its_challenge_gets_no_work_and_not_by_coming_back(place):
    def lie(source):
        renamed = source.replace("export async function multiply(", "async function honest(")
        return (
            renamed
            + "\nexport async function multiply(...given) { const n = await honest(...given); n[0] ^= 1; return n; }"
        )

    async with lent_tab(place.browser, place.url, start=False, changed={"matmul.js": lie}) as tab:
        await tab.lend()
        await expect(tab.page.locator("#state")).to_have_attribute("data-state", "refused", timeout=60_000)
        assert "the product is wrong" in await tab.text("state")
        tab_id = await tab.node_id
        await wait_for(place, tab_id, "DEGRADED")
        await tab.page.reload()
        await tab.lend()
        await wait_for(place, tab_id, "DEGRADED")
        assert (await tab_view(place, tab_id))["measured"]["ops_s"] is None


def hello_of(identity: Identity, challenge: dict[str, object], **more: object) -> str:
    hello = {
        "type": "hello",
        "protocol": 1,
        "node_id": identity.node_id,
        "public_key": base64.b64encode(identity.public_key).decode(),
        "report": {},
        "offer": {"models": [], "slots": 1},
        **more,
    }
    proof = identity.prove(str(challenge["coordinator_key"]), str(challenge["nonce"]), hello)
    return json.dumps({**hello, "proof": proof})


async def test_only_our_own_pages_and_proved_hellos_open_a_link(place):
    url = place.url.replace("http", "ws")
    for origin in (None, "https://elsewhere.example"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{url}/browser/v1/link", origin=origin)
        assert refused.value.response.status_code == 403
    for protocols in (None, ["brain.slot.v1"], ["brain.slot.v1", "made-up"]):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{url}/browser/v1/slot", origin=place.url, subprotocols=protocols)
        assert refused.value.response.status_code == 401

    identity = Identity.generate()
    async with connect(f"{url}/browser/v1/link", origin=place.url) as link:
        spoken = hello_of(identity, json.loads(await link.recv()))
        await link.send(spoken)
        assert json.loads(await link.recv())["type"] == "welcome"
    async with connect(f"{url}/browser/v1/link", origin=place.url) as link:
        await link.recv()
        await link.send(spoken)  # a hello that was overheard
        answer = json.loads(await link.recv())
        assert (answer["type"], answer["code"]) == ("refused", "bad_proof")
        with pytest.raises(ConnectionClosed):
            await link.recv()


async def test_no_address_is_shown_of_a_tab(place):
    async with lent_tab(place.browser, place.url), httpx.AsyncClient(trust_env=False) as client:
        assert "127.0.0.1" not in (await client.get(f"{place.url}/v1/tabs")).text
