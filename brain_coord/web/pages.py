"""/network: the fleet and the models as one server-rendered page."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, select_autoescape

from brain_coord.fleet.registry import Registry
from brain_coord.gateway.entry import Gateway

_PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape())

SECURITY = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def unknown(value: Any, unit: str = "") -> str:
    """A figure with its unit; UNKNOWN when it was never measured."""
    if value is None:
        return "UNKNOWN"
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".rstrip()


_PAGES.filters["unknown"] = unknown


def network_router(gateway: Gateway, registry: Registry) -> APIRouter:
    """The pages over one coordinator."""
    router = APIRouter(include_in_schema=False)

    @router.get("/network")
    async def network() -> HTMLResponse:
        nodes = [node.public_view() for node in registry]
        page = _PAGES.get_template("network.html").render(nodes=nodes, models=gateway.decider.models())
        return HTMLResponse(page, headers=SECURITY)

    return router
