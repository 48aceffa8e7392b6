"""`/lend` in Chromium: nothing before the button, an identity that cannot be copied, and owners who stay in charge."""

import asyncio
import base64
import json
import re

import httpx
import pytest
from playwright.async_api import expect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from brain_coord.browser.models import add_model, remove_model
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
        assert await tab.text("pause") == "Resume"
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
        memory = tab.page.locator("select[name=memory]")
        await expect(memory).to_be_disabled()  # it is told when the link begins; another choice would change nothing
        await tab.page.locator("#stop").click()
        await wait_for(place, tab_id, "OFFLINE")
        await memory.select_option("512")
        await tab.lend()
        await wait_for(place, tab_id, "ONLINE")
        assert (await tab_view(place, tab_id))["reported"]["memory_mib"] == 512


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


async def test_of_two_tabs_of_one_browser_the_one_that_was_asked_last_lends_and_the_other_says_so(place):
    async with lent_tab(place.browser, place.url) as first:
        tab_id = await first.node_id
        links = []
        page = await first.context.new_page()
        page.on("websocket", lambda socket: links.append(socket.url) if socket.url.endswith("link") else None)
        await page.goto(f"{place.url}/lend")
        await page.locator("#start").click()
        await expect(first.page.locator("#state")).to_contain_text("lends in another tab", timeout=60_000)
        await expect(page.locator("#state")).to_have_attribute("data-state", "lending", timeout=60_000)
        await expect(first.page.locator("#start")).to_be_enabled()
        assert await page.locator("#identity").text_content() == tab_id
        await expect(first.page.locator("#state")).to_contain_text("lends in another tab")
        assert len(links) == 1, "nobody fights for the name"
        await wait_for(place, tab_id, "ONLINE")
        await first.lend()  # the owner may move back at any time
        await first.measured()
        await expect(page.locator("#state")).to_contain_text("lends in another tab")


async def test_a_link_that_fell_silent_is_dialled_anew(place):
    """As after hours of sleep, or behind a router that forgot the connection: no end of it ever comes."""
    asleep, links = [False], []

    def relay(route):
        links.append(route)
        server = route.connect_to_server()
        mine = asleep[0]
        route.on_message(lambda data: None if asleep[0] is not mine else server.send(data))
        server.on_message(lambda data: None if asleep[0] is not mine else route.send(data))

    async with lent_tab(place.browser, place.url, start=False) as tab:
        await tab.page.route_web_socket("**/browser/v1/link", relay)
        await tab.page.clock.install()
        await tab.page.reload()
        await tab.lend()
        await tab.measured()
        asleep[0] = True
        await tab.page.clock.run_for(20_000)
        assert len(links) == 1, "a little silence is none"
        await tab.page.clock.run_for(30_000)
        await expect(tab.page.locator("#state")).to_contain_text("cannot be reached")
        await tab.page.clock.run_for(10_000)
        await tab.measured()
        assert len(links) == 2


LOSABLE = """
(() => {
  const ask = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (wish) {
    if (globalThis.refusing) throw new DOMException("the driver resets", "OperationError");
    const device = await ask.call(this, wish);
    const lost = new Promise((done) => { globalThis.lose = () => done({ reason: "unknown", message: "driver reset" }); });
    Object.defineProperty(device, "lost", { value: lost });
    return device;
  };
})();
"""


async def test_a_tab_whose_gpu_was_taken_away_comes_back_by_itself_but_not_for_ever(place):
    async with lent_tab(place.browser, place.url, start=False) as tab:
        await tab.page.add_init_script(LOSABLE)
        await tab.page.clock.install()
        await tab.page.reload()
        await tab.lend()
        await tab.measured()
        tab_id = await tab.node_id
        await tab.page.evaluate("lose()")
        await expect(tab.page.locator("#state")).to_have_text(
            "The browser took the GPU away (driver reset). Tries again in 2 seconds."
        )
        await wait_for(place, tab_id, "OFFLINE")
        await tab.page.clock.run_for(2_100)
        await tab.measured()
        assert await tab.node_id == tab_id
        # Once more, and now it does not come back: less eagerly each time, until the owner has to say so.
        await tab.page.evaluate("refusing = true; lose()")
        for wait_s in (4, 8, 16, 32):
            await expect(tab.page.locator("#state")).to_contain_text(f"Tries again in {wait_s} seconds.")
            await tab.page.clock.run_for(wait_s * 1000 + 100)
        await expect(tab.page.locator("#state")).to_contain_text("Press the button to try again.")
        await tab.page.evaluate("refusing = false")
        await tab.lend()
        await tab.measured()
        # Who stops while it waits has stopped.
        await tab.page.evaluate("lose()")
        await expect(tab.page.locator("#state")).to_contain_text("Tries again in 2 seconds.")
        await tab.page.locator("#stop").click()
        await tab.page.clock.run_for(120_000)
        assert await tab.text("state") == "Not lending."
        await expect(tab.page.locator("#start")).to_be_enabled()


async def test_work_that_its_owner_stopped_is_not_called_a_fault(place):
    async with lent_tab(place.browser, place.url) as tab, place.api() as client:
        body = {"rows": 1024, "inner": 2048, "columns": 1024, "seed": 1}
        asked = asyncio.create_task(client.post("/v1/compute/matmul", json=body))
        await expect(tab.page.locator("#now")).to_contain_text("a matrix product", timeout=60_000)
        await tab.page.locator("#stop").click()
        await expect(tab.page.locator("#state")).to_have_text("Not lending.")
        await asked
        assert await tab.text("fault") == ""
        assert await tab.text("stages") == "none"


def crammed(source):
    """A card that is full: what is asked of it is above what it has, and WebGPU says so beside the call, not from it."""
    return source.replace(
        "size: Math.max(16, Math.ceil(bytes / 16) * 16),",
        "size: globalThis.full ? 2 ** 50 : Math.max(16, Math.ceil(bytes / 16) * 16),",
    )


async def test_a_card_that_is_full_is_a_fault_and_not_a_lie(place):
    async with lent_tab(place.browser, place.url, changed={"gpu.js": crammed}) as tab, place.api() as client:
        tab_id = await tab.node_id
        body = {"rows": 64, "inner": 64, "columns": 64, "seed": 1}
        await tab.page.evaluate("globalThis.full = true")
        reply = await client.post("/v1/compute/matmul", json=body)
        assert reply.status_code >= 500
        view = await tab_view(place, tab_id)
        assert (view["state"], view["measured"]["answers_refused"]) == ("ONLINE", 0), view["reason"]
        assert "The last job failed here: the GPU could not do it: " in await tab.text("fault")
        await tab.page.evaluate("globalThis.full = false")
        assert (await client.post("/v1/compute/matmul", json=body)).status_code == 200
        assert await tab.text("fault") == ""


def watched(source):
    """Keeps when each job ran."""
    return source + (
        "\nfor (const kernel of Object.values(KERNELS)) { const { run } = kernel; kernel.run = async (...given) => {"
        " const began = performance.now(); try { return await run(...given); }"
        " finally { (globalThis.spans ??= []).push([began, performance.now()]); } }; }"
    )


async def test_the_share_of_the_time_holds_within_an_answer_too_and_not_only_between_two(place, model):
    add_model(place.coordinator.data_dir, model.folder, model.model_id, stages=1, replicas=1)
    try:
        async with lent_tab(place.browser, place.url, changed={"kernels.js": watched}) as tab, place.api() as client:
            tab_id = await tab.node_id

            async def holds():
                return (await tab_view(place, tab_id))["stages"]

            await eventually(holds)
            await tab.page.locator("select[name=duty]").select_option("25")
            await tab.page.evaluate("globalThis.spans = []")
            body = {"model": model.model_id, "messages": [{"role": "user", "content": "Go on"}], "ignore_eos": True}
            reply = await client.post("/v1/chat/completions", json={**body, "max_tokens": 24, "mode": "BROWSER_ONLY"})
            assert reply.json()["usage"]["completion_tokens"] == 24
            spans = (await tab.page.evaluate("spans"))[:24]
            worked = sum(end - began for began, end in spans[:-1])
            assert worked / (spans[-1][0] - spans[0][0]) <= 0.26
    finally:
        remove_model(place.coordinator.data_dir, model.model_id)
