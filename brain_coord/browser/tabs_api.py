"""`GET /v1/tabs`: the tabs as anybody may see them, claims beside measurements, no addresses."""

import time
from time import monotonic
from typing import Any

from fastapi import APIRouter

from brain_coord.browser.tabs import Tabs
from brain_coord.gateway.errors import fault


def tabs_router(tabs: Tabs) -> APIRouter:
    """The routes over all tabs."""
    router = APIRouter(tags=["nodes"])

    @router.get("/v1/tabs")
    async def list_tabs() -> dict[str, Any]:
        """Every tab that has lent since the coordinator started, by id."""
        now, now_s = monotonic(), time.time()
        every = sorted(tabs, key=lambda tab: tab.tab_id)
        return {"object": "list", "data": [tab.view(now, now_s) for tab in every]}

    @router.get("/v1/tabs/{tab_id}")
    async def get_tab(tab_id: str) -> dict[str, Any]:
        """One tab."""
        tab = tabs.get(tab_id)
        if tab is None:
            raise fault("not_found", f"no tab {tab_id} has joined since the coordinator started")
        return tab.view(monotonic(), time.time())

    return router
