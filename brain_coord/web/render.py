"""Templates to HTML answers, under a Content-Security-Policy that lets nothing run but our own files."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

UNKNOWN: Final = "UNKNOWN"

SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types brain"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
"""On every page. The one trusted-types policy is that of `morph.js`, which takes HTML from this coordinator only."""

# Control characters and marks that reorder text: a node must not write its region backwards over its neighbour's.
_UNPLAIN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def plain(value: object) -> str:
    """Text from strangers without control characters and without marks that change the direction of writing."""
    return _UNPLAIN.sub("�", str(value))


def figure(value: float | int | None, unit: str = "", digits: int = 1) -> str:
    """A number with its unit; UNKNOWN when it was never measured."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.{digits}f}" if isinstance(value, float) else f"{value:,}"
    return f"{text} {unit}".rstrip()


def gigabytes(mib: int | None) -> str:
    """MiB as GB, the way the routers' sentences round it."""
    return UNKNOWN if mib is None else f"{int(mib / 1024 + 0.5)} GB"


def clock(time: str) -> str:
    """The time of day in an RFC 3339 text."""
    return time[11:19]


@lru_cache
def environment() -> Environment:
    """The templates; every value is escaped."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"plain": plain, "figure": figure, "gigabytes": gigabytes, "clock": clock}
    return templates


def fragment(template: str, **values: Any) -> str:
    """The HTML of one part of a page."""
    return environment().get_template(template).render(values)


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page. Never cached: what it shows is of this second, and operators see more than others."""
    headers = {**SECURITY, "cache-control": "no-store"}
    return HTMLResponse(fragment(template, **values), status_code=status, headers=headers)
