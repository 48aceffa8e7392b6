"""Debian's Chromium, driven by playwright, with everything it says kept for the test."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright

from tests.support.npm import npm_folder

CHROMIUM = os.environ.get("BRAIN_TEST_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATIENCE_MS = 30_000.0


@asynccontextmanager
async def chromium(*more: str) -> AsyncIterator[Browser]:
    """A browser of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *more])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visit:
    """One page, and what happened on it: hosts it asked, errors, violations of its policy."""

    page: Page
    hosts: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    async def violations(self) -> list[Any]:
        return list(await self.page.evaluate("globalThis.violations ?? []"))


@asynccontextmanager
async def visit(browser: Browser, **options: Any) -> AsyncIterator[Visit]:
    """A fresh profile with one page."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    seen = Visit(page)
    page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
    page.on("pageerror", lambda error: seen.faults.append(str(error)))
    page.on("console", lambda message: seen.faults.append(message.text) if message.type == "error" else None)
    await page.add_init_script(
        "globalThis.violations = []; addEventListener('securitypolicyviolation',"
        " (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`))"
    )
    try:
        yield seen
    finally:
        await context.close()


async def serious_faults(page: Page) -> list[str]:
    """What axe-core finds that is serious or critical, with the place of each."""
    script = npm_folder("axe", **{"axe-core": "^4.10.0"}) / "node_modules" / "axe-core" / "axe.min.js"
    await page.evaluate(script.read_text())
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
