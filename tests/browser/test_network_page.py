"""Tabs on /network, beside nodes, live; and how a product and its verification read there."""

import pytest
from playwright.async_api import expect

from tests.support.browser import serious_faults
from tests.support.tabs import lent_tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def test_a_tab_comes_and_goes_on_the_network_page(place):
    context = await place.browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(f"{place.url}/network")
        await expect(page.get_by_text("No tab lends its GPU right now")).to_be_visible()
        async with lent_tab(place.browser, place.url) as tab, place.api() as client:
            tab_id = await tab.node_id
            row = page.locator(f"#tab-{tab_id}")
            await expect(row).to_contain_text("ONLINE")
            await expect(row).to_contain_text("Mop/s")
            await expect(row).to_contain_text("swiftshader")
            body = {"rows": 64, "inner": 256, "columns": 64, "seed": 1}
            job = (await client.post("/v1/compute/matmul", json=body)).json()
            await expect(row).to_contain_text("1 verified")
            await expect(page.locator(".decisions")).to_contain_text("compute.matmul_u32")
            assert await serious_faults(page) == []
            await row.get_by_role("link").click()
            await expect(page.locator("h1")).to_have_text(tab_id)
            await expect(page.locator("main")).to_contain_text("Units verified")
            await expect(page.locator(".decisions")).to_contain_text("compute.matmul_u32")
            assert await serious_faults(page) == []
            await page.goto(f"{place.url}/network/receipts/{job['receipt']}")
            await expect(page.locator("main")).to_contain_text("BROWSER_NETWORK")
            await expect(page.locator("main")).to_contain_text(tab_id)
            await page.goto(f"{place.url}/network")
        await expect(page.locator(f"#tab-{tab_id}")).to_have_count(0)
        await page.goto(f"{place.url}/network/nodes/{tab_id}")  # where the score table of a decision leads
        await expect(page.locator("h1")).to_have_text(tab_id)
    finally:
        await context.close()
