"""The site in a real browser, over a real coordinator and real links."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.browser import chromium, serious_faults, visit
from tests.support.coordinator import CoordinatorProcess
from tests.support.raw_node import RawJob, RawNode, answer, chunk, usage
from tests.support.tcp_relay import TcpRelay

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EVIL = "<img src=x onerror=globalThis.hacked=1><script>globalThis.hacked=1</script>"
MODEL = "qwen/qwen2.5-7b-instruct"
PATIENCE_MS = 30_000


@dataclass
class World:
    """A coordinator with two nodes, a key, an operator, and a browser."""

    coordinator: CoordinatorProcess
    near: RawNode
    evil: RawNode
    browser: Browser
    key: str
    secret: str

    @property
    def url(self) -> str:
        return self.coordinator.url

    async def ask(self, model: str = MODEL, **members: object) -> dict[str, object]:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **members}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            reply = await client.post(
                f"{self.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {self.key}"}
            )
            return dict(reply.json())

    async def receipt(self) -> dict[str, object]:
        """A whole receipt of a new request."""
        brain = (await self.ask())["brain"]
        assert isinstance(brain, dict)
        async with httpx.AsyncClient(trust_env=False) as client:
            reply = await client.get(
                f"{self.url}/v1/receipts/{brain['receipt']}", headers={"authorization": f"Bearer {self.key}"}
            )
            return dict(reply.json())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder: Path = tmp_path_factory.mktemp("world")
    with CoordinatorProcess(folder / "coord", "--open-join") as coordinator:
        key, secret = coordinator.key(), coordinator.command("operator", "create")["secret"]
        card = {"name": EVIL, "total_bytes": 24 * 2**30}
        async with (
            RawNode(coordinator.url, models=(MODEL,), offer={"region": "eu"}) as near,
            RawNode(
                coordinator.url,
                models=(MODEL, "brain/mock"),
                report={"engine": EVIL, "vram_mib": 24_000, "gpus": [card]},
                offer={"region": EVIL, "ask_usd_per_1m": 0.5},
            ) as evil,
            chromium() as browser,
        ):
            for node in (near, evil):
                await asyncio.to_thread(
                    coordinator.wait_for_node, node.node_id, 90, basis="coordinator-timed", state="ONLINE"
                )
            yield World(coordinator, near, evil, browser, key, secret)


async def test_the_page_shows_a_node_that_dies_and_one_that_comes(world: World) -> None:
    async with visit(world.browser) as seen:
        await seen.page.goto(f"{world.url}/network")
        await expect(seen.page.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)
        late = RawNode(world.url, models=("brain/mock",), slots=1)
        await late.join()
        row = seen.page.locator(f"#node-{late.node_id}")
        await expect(row).to_be_visible(timeout=PATIENCE_MS)
        await expect(row.locator(".state")).to_have_text("ONLINE", timeout=PATIENCE_MS)
        await late.leave()
        await expect(row.locator(".state")).to_have_text("OFFLINE", timeout=PATIENCE_MS)
        assert not seen.faults


@pytest.mark.parametrize("about_one_node", [False, True])
async def test_the_page_says_so_while_the_coordinator_is_silent(world: World, *, about_one_node: bool) -> None:
    path = f"/network/nodes/{world.near.node_id}" if about_one_node else "/network"
    async with visit(world.browser) as seen:
        await seen.page.goto(world.url + path)
        live = seen.page.locator("#live")
        await expect(live).to_have_attribute("data-state", "live", timeout=PATIENCE_MS)
        os.kill(world.coordinator.program.pid, signal.SIGSTOP)
        try:
            await expect(live).to_contain_text("Stale since", timeout=PATIENCE_MS)
        finally:
            os.kill(world.coordinator.program.pid, signal.SIGCONT)
        await expect(live).to_have_text("Live", timeout=PATIENCE_MS)


async def test_a_live_page_whose_connection_died_without_a_word_dials_anew(world: World) -> None:
    """As after hours of sleep: the browser sees no end of it, and would wait for ever."""
    async with TcpRelay(world.coordinator.port) as relay, visit(world.browser) as seen:
        await seen.page.clock.install()
        await seen.page.goto(f"http://127.0.0.1:{relay.port}/network")
        live = seen.page.locator("#live")
        await expect(live).to_have_text("Live", timeout=PATIENCE_MS)
        relay.forget_all()
        await seen.page.clock.run_for(8_000)
        await expect(live).to_contain_text("Stale since", timeout=PATIENCE_MS)
        await seen.page.clock.run_for(60_000)  # each of the browser's idle connections is as dead
        await expect(live).to_have_text("Live", timeout=PATIENCE_MS)


async def test_every_time_on_a_page_is_utc_wherever_its_reader_is(world: World) -> None:
    await world.ask()
    async with visit(world.browser, timezone_id="Asia/Kolkata") as seen:
        page = seen.page
        await page.add_init_script(
            "globalThis.drawn = []; const draw = CanvasRenderingContext2D.prototype.fillText;"
            "CanvasRenderingContext2D.prototype.fillText = function (text, ...at)"
            " { drawn.push(text); return draw.call(this, text, ...at); }"
        )
        await page.goto(f"{world.url}/network")
        await expect(page.locator("[data-latest=fleet]")).to_contain_text("online", timeout=PATIENCE_MS)
        hour = datetime.now(UTC)
        hours = {f"{(hour - timedelta(hours=back)).hour:02}" for back in range(3)}
        axis = [text for text in await page.evaluate("drawn") if re.fullmatch(r"\d\d:\d\d", text)]
        assert axis
        assert {text[:2] for text in axis} <= hours
        assert {text[3:] for text in axis} & {"00", "30"}, "on round hours of UTC"
        await expect(page.locator("footer")).to_contain_text("Times are UTC")


async def test_a_trace_adds_up_to_its_scores(world: World) -> None:
    async with visit(world.browser) as seen:
        await world.ask()
        await seen.page.goto(f"{world.url}/network")
        await seen.page.locator(".decision summary").first.click()
        trace = seen.page.locator(".decision .trace").first
        await expect(trace).to_be_visible(timeout=PATIENCE_MS)
        rows = await trace.evaluate(
            "(trace) => [...trace.querySelectorAll('tr[data-score]')].map((row) => ({"
            "score: Number(row.dataset.score),"
            "points: [...row.querySelectorAll('[data-points]')].map((cell) => Number(cell.dataset.points)),"
            "bar: [...row.querySelectorAll('rect[class^=term]')].map((rect) => Number(rect.getAttribute('width')) / 1000)"
            "}))"
        )
        assert len(rows) >= 2  # a class and at least one node
        for row in rows:
            assert sum(row["points"]) == pytest.approx(row["score"], abs=2e-5)
            assert sum(row["bar"]) == pytest.approx(row["score"], abs=5e-3)
        await expect(trace.locator("h3").first).to_have_text("Privacy filter: PUBLIC")


async def test_a_receipt_verifies_in_the_browser_and_a_changed_one_does_not(world: World) -> None:
    receipt = await world.receipt()
    async with visit(world.browser) as seen:
        await seen.page.goto(f"{world.url}/network/verify")
        verdict = seen.page.locator("#verdict .verdict")
        for change, said in (
            (lambda text: text, "Valid."),
            (lambda text: text.replace(world.near.node_id[:-1], "N-000000000000000"), "hash_mismatch"),
            (lambda text: text.replace('"seq": ', '"seq": 1'), "hash_mismatch"),
            (lambda text: text.replace(str(receipt["signature"])[:8], "AAAAAAAA"), "bad_signature"),
            (lambda text: text.replace('"chain"', '"chian"', 1), "malformed"),
        ):
            await seen.page.fill("textarea", change(json.dumps(receipt)))
            await seen.page.click("main button")
            await expect(verdict).to_contain_text(said, timeout=PATIENCE_MS)
        assert not seen.faults


async def test_the_page_of_a_receipt_checks_it_for_who_has_the_key(world: World) -> None:
    body = (await world.receipt())["body"]
    assert isinstance(body, dict)
    async with visit(world.browser) as seen:
        await seen.page.goto(f"{world.url}/network/receipts/{body['id']}")
        assert str(body["key"]) not in await seen.page.content()
        assert str(body["request_sha256"]) not in await seen.page.content()
        await seen.page.fill("[name=key]", "bk-wrong")
        await seen.page.click("#verify button")
        await expect(seen.page.locator("#verdict")).to_contain_text("not valid here", timeout=PATIENCE_MS)
        await seen.page.fill("[name=key]", world.key)
        await seen.page.click("#verify button")
        await expect(seen.page.locator("#verdict")).to_contain_text("Valid.", timeout=PATIENCE_MS)


async def test_the_playground_streams_shows_the_trace_and_trusts_no_answer(world: World) -> None:
    go_on = asyncio.Event()

    async def slow(job: RawJob) -> None:
        if job.request.get("ignore_eos"):
            await answer(job)
            return
        await job.accept()
        await job.head()
        await job.event(chunk(f"first {EVIL} "))
        await go_on.wait()
        await job.event(chunk("second"))
        await job.event(chunk(finish="stop"))
        await job.event(usage(5))
        await job.send(b"data: [DONE]\n\n")
        await job.end()

    world.near.script = world.evil.script = slow
    try:
        async with visit(world.browser) as seen:
            page = seen.page
            await page.goto(f"{world.url}/network/playground?model={MODEL}")
            await page.fill("[name=key]", world.key)
            await page.select_option("[name=mode]", "FAST")
            await page.click("text=Send")
            await expect(page.locator("#answer")).to_contain_text(f"first {EVIL}", timeout=PATIENCE_MS)
            assert "second" not in (await page.locator("#answer").text_content() or "")
            go_on.set()
            await expect(page.locator("#answer")).to_contain_text("second", timeout=PATIENCE_MS)
            await expect(page.locator("#trace .trace")).to_be_visible(timeout=PATIENCE_MS)
            await expect(page.locator("#trace")).to_contain_text("mode FAST")
            await expect(page.locator("#verdict")).to_contain_text("Valid.", timeout=PATIENCE_MS)
            for kind, start in (("curl", "curl -N '"), ("python", "import os"), ("node", "import OpenAI")):
                if kind == "curl":
                    await page.click("text=The same request as code")
                await page.click(f"[data-code={kind}]")
                code = await page.locator("#code").text_content() or ""
                assert code.startswith(start)
                assert world.key not in code
                assert "FAST" in code
            assert await page.evaluate("globalThis.hacked") is None
            assert not seen.faults
    finally:
        world.near.script = world.evil.script = answer


async def test_a_request_that_nobody_can_serve_is_explained_in_the_playground(world: World) -> None:
    async with visit(world.browser) as seen:
        page = seen.page
        await page.goto(f"{world.url}/network/playground")
        await page.evaluate("document.querySelector('[name=model]').add(new Option('qwen/qwen2.5-72b-instruct-awq'))")
        await page.select_option("[name=model]", "qwen/qwen2.5-72b-instruct-awq")
        await page.fill("[name=key]", world.key)
        await page.click("text=Send")
        await expect(page.locator("#progress")).to_contain_text("no_capacity", timeout=PATIENCE_MS)
        await expect(page.locator("#trace")).to_contain_text("No target was asked", timeout=PATIENCE_MS)
        await expect(page.locator("#trace")).to_contain_text("does not serve qwen/qwen2.5-72b-instruct-awq")


async def repeat(say: Callable[[], Awaitable[None]]) -> None:
    """Again and again, since the node's regular heartbeat takes a claim back."""
    while True:
        await say()
        await asyncio.sleep(0.3)


async def test_nothing_a_node_says_becomes_markup(world: World) -> None:
    async with visit(world.browser) as seen:
        for path in ("/network", f"/network/nodes/{world.evil.node_id}", f"/network/models/{MODEL}"):
            await seen.page.goto(world.url + path)
            if path == "/network":
                await expect(seen.page.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)
                # Changed while the page looks on: the fragments that come live are as harmless as the page itself.
                claims = [{"model": "brain/mock", "state": "failed", "cause": EVIL, "elapsed_s": 1.0}]
                saying = asyncio.create_task(repeat(partial(world.evil.heartbeat, engines=claims)))
                row = seen.page.locator(f"#node-{world.evil.node_id}")
                await expect(row).to_contain_text("failed (<img", timeout=PATIENCE_MS)
                saying.cancel()
            assert await seen.page.evaluate("globalThis.hacked") is None
            assert await seen.page.locator("main img").count() == 0
            assert await seen.page.locator("main script").count() == 0
            assert not await seen.violations()


async def test_the_policy_lets_nothing_run_but_our_own_files(world: World) -> None:
    async with visit(world.browser) as seen:
        await seen.page.goto(f"{world.url}/network")
        await seen.page.evaluate(
            "(() => { const script = document.createElement('script');"
            " try { script.textContent = 'globalThis.hacked = 1'; document.body.append(script); } catch {} })()"
        )
        refused = await seen.page.evaluate(
            "(() => { try { document.body.innerHTML = '<p>x</p>'; return false; } catch { return true; } })()"
        )
        assert refused
        elsewhere = await seen.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
        assert elsewhere == "refused"
        assert await seen.page.evaluate("globalThis.hacked") is None
        assert any("connect-src" in each for each in await seen.violations())


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_serious_accessibility_fault_and_no_other_host(world: World, scheme: str) -> None:
    receipt = (await world.receipt())["body"]
    assert isinstance(receipt, dict)
    pages = [
        "/network",
        f"/network/nodes/{world.evil.node_id}",
        f"/network/models/{MODEL}",
        f"/network/receipts/{receipt['id']}",
        f"/network/decisions/d-{receipt['id'][2:]}",
        "/network/verify",
        "/network/playground",
        "/network/operator",
        "/network/models/nonsense",
        "/docs",
        "/lend",
    ]
    async with visit(world.browser, color_scheme=scheme, reduced_motion="reduce") as seen:
        for path in pages:
            await seen.page.goto(world.url + path)
            if path == "/network":
                await seen.page.locator(".decision summary").first.click()
                await expect(seen.page.locator(".decision .trace").first).to_be_visible(timeout=PATIENCE_MS)
            assert await serious_faults(seen.page) == [], path
        await seen.page.goto(f"{world.url}/network/operator")
        await seen.page.fill("[name=secret]", world.secret)
        await seen.page.click("main button")
        await expect(seen.page.locator("#h-tokens")).to_be_visible(timeout=PATIENCE_MS)
        assert await serious_faults(seen.page) == [], "operator"
        assert seen.hosts == {world.url.removeprefix("http://")}
        assert not await seen.violations()


async def test_a_phone_shows_everything_without_scrolling_sideways(world: World) -> None:
    async with visit(world.browser, viewport={"width": 320, "height": 800}) as seen:
        for path in ("/network", f"/network/nodes/{world.evil.node_id}", "/network/playground", "/network/operator"):
            await seen.page.goto(world.url + path)
            await expect(seen.page.locator("h1")).to_be_visible()
            assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 320, path
        await seen.page.goto(f"{world.url}/network/playground")
        await seen.page.locator("[name=model] option").first.evaluate(f"each => each.textContent = '{'long-' * 12}'")
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 320, "a long name of a model"


async def test_the_keyboard_reaches_a_decision_and_keeps_its_place_while_the_page_goes_on(world: World) -> None:
    await world.ask()
    async with visit(world.browser) as seen:
        page = seen.page
        await page.goto(f"{world.url}/network")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        name = await page.locator(".decision").first.get_attribute("id")
        decision = page.locator(f"#{name}")  # another may become the first one at any moment
        await decision.locator("summary").focus()
        await page.keyboard.press("Enter")
        await expect(decision.locator(".trace")).to_be_visible(timeout=PATIENCE_MS)
        for _ in range(3):
            await world.ask()
        await expect(page.locator(".decision").first).not_to_have_attribute("id", str(name), timeout=PATIENCE_MS)
        assert await page.evaluate("document.activeElement.closest('.decision')?.id") == name
        await expect(decision.locator(".trace")).to_be_visible()


async def test_an_operator_drains_bans_and_makes_a_token(world: World) -> None:
    guest = RawNode(world.url, models=("brain/mock",), slots=1)
    await guest.join()
    async with visit(world.browser) as seen:
        page = seen.page
        await page.goto(f"{world.url}/network/operator")
        await page.fill("[name=secret]", "bo-guess")
        await page.click("main button")
        await expect(page.locator("[role=alert]")).to_contain_text("not the operator", timeout=PATIENCE_MS)
        await page.fill("[name=secret]", world.secret)
        await page.click("main button")
        row = page.locator("tr", has_text=guest.node_id)
        await expect(row).to_contain_text("127.0.0.1", timeout=PATIENCE_MS)
        await page.click(f"[aria-label='Drain {guest.node_id}']")
        await expect(row.locator(".state")).to_have_text("DRAINING", timeout=PATIENCE_MS)
        await page.click(f"[aria-label='Trust {guest.node_id}']")
        await expect(row).to_contain_text("trusted", timeout=PATIENCE_MS)
        await page.fill(f"[aria-label='Reason for the ban of {guest.node_id}']", "lied")
        await page.click(f"[aria-label='Ban {guest.node_id}']")
        await expect(row).to_contain_text("banned: lied", timeout=PATIENCE_MS)
        assert (await RawNode(world.url, identity=guest.identity).join())["code"] == "banned"
        await page.click("text=Make a token")
        token = await page.locator("#made").text_content() or ""
        assert token.startswith("bt-")
        await page.goto(f"{world.url}/network/operator")
        assert token not in await page.content()
        await page.click("text=Log out")
        await expect(page.locator("[name=secret]")).to_be_visible(timeout=PATIENCE_MS)
    await guest.leave()
