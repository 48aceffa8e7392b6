"""Tabs that really lend: Debian's Chromium with WebGPU on a software adapter, each tab with a profile of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import httpx
from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright, expect

from tests.support.browser import CHROMIUM

ARGUMENTS = (
    "--headless=new --no-sandbox --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader "
    "--enable-features=Vulkan --use-vulkan=swiftshader --disable-vulkan-surface"
).split()
PATIENCE_S = 90.0


@asynccontextmanager
async def webgpu_browser(*more: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *more])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class LentTab:
    """One tab on `/lend`."""

    page: Page
    context: BrowserContext
    faults: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    @property
    async def node_id(self) -> str:
        return str(await self.page.locator("#identity").text_content())

    async def lend(self) -> None:
        await self.page.locator("#start").click()

    async def measured(self) -> None:
        """Wait until the coordinator has measured it."""
        await expect(self.page.locator("#state")).to_have_attribute("data-state", "lending", timeout=PATIENCE_S * 1000)

    async def text(self, name: str) -> str:
        return str(await self.page.locator(f"#{name}").text_content())

    async def close(self) -> None:
        await self.context.close()


@asynccontextmanager
async def lent_tab(
    browser: Browser, url: str, *, start: bool = True, changed: dict[str, Any] | None = None
) -> AsyncIterator[LentTab]:
    """A tab; `changed` maps a module's name to what makes other source of it, as a dishonest owner would."""
    context = await browser.new_context(viewport={"width": 1000, "height": 900})
    page = await context.new_page()
    tab = LentTab(page, context)
    page.on("pageerror", lambda error: tab.faults.append(str(error)))
    page.on("console", lambda message: tab.faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: tab.hosts.add(request.url.split("/")[2]))
    for name, change in (changed or {}).items():

        async def serve(route: Route, _: object, change: Any = change) -> None:
            reply = await route.fetch()
            await route.fulfill(response=reply, body=change(await reply.text()))

        await page.route(f"**/lend/{name}", serve)
    await page.goto(f"{url}/lend")
    try:
        if start:
            await tab.lend()
            await tab.measured()
        yield tab
    finally:
        await context.close()


async def eventually(check: Any, timeout_s: float = PATIENCE_S) -> Any:
    """The first truthy answer of an async check."""
    deadline = monotonic() + timeout_s
    while True:
        answer = await check()
        if answer:
            return answer
        assert monotonic() < deadline, f"not within {timeout_s} s: {answer!r}"
        await asyncio.sleep(0.1)


def api(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=180, headers={"authorization": f"Bearer {key}"})
