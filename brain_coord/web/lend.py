"""`/lend`: the page on which a tab lends its GPU."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from brain_coord.web.render import page


def lend_router(base: str) -> APIRouter:
    """The page; `base` is the path prefix that a proxy in front keeps."""
    router = APIRouter(include_in_schema=False)

    @router.get("/lend")
    async def lend() -> HTMLResponse:
        """Lend this browser tab: one button, WebGPU, its own key."""
        return page("lend.html", base=base, here="/lend")

    return router
