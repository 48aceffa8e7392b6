"""Scripts, styles and the chart library: files of this package, served with a tag so that browsers keep them."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from brain_coord.gateway.errors import fault

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".wgsl": "text/plain"}


@lru_cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Name to content, type and tag. Only names in here are served, so no path can lead out of the folder."""
    found = {}
    for path in sorted(_FOLDER.rglob("*")):
        if (kind := _TYPES.get(path.suffix)) is not None:
            data = path.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
            found[path.relative_to(_FOLDER).as_posix()] = (data, f"{kind}; charset=utf-8", tag)
    return found


def assets_router() -> APIRouter:
    """`/network/static/…`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/network/static/{name:path}")
    async def asset(name: str, request: Request) -> Response:
        """Scripts, styles and icons of the pages."""
        if name not in _files():
            raise fault("not_found", f"there is no file {name}")
        data, kind, tag = _files()[name]
        headers = {"etag": tag, "cache-control": "no-cache", "x-content-type-options": "nosniff"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return router
