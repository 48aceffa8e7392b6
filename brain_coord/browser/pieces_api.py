"""Pieces of weights by their hash, for tabs that have a session: a checkpoint may be the operator's own."""

import asyncio

from fastapi import APIRouter, Request, Response

from brain_coord.browser.models import read_bytes
from brain_coord.browser.shelf import Shelf
from brain_coord.browser.tabs import Tabs
from brain_coord.gateway.auth import bearer_of
from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import headers_of


def pieces_router(tabs: Tabs, shelf: Shelf) -> APIRouter:
    """`/lend/pieces/…`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/lend/pieces/{sha256}")
    async def piece(sha256: str, request: Request) -> Response:
        """One piece of a browser model's weights, for tabs that lend."""
        if tabs.by_ticket(bearer_of(headers_of(request.scope))) is None:
            raise fault("invalid_api_key", "weights are for tabs that lend; the slot ticket is not valid")
        found = shelf.pieces.get(sha256)
        if found is None:
            raise fault("not_found", "no model here has such a piece")
        path, place = found
        data = await asyncio.to_thread(read_bytes, path, place.offset, place.size_bytes)
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}  # the page keeps it itself
        return Response(data, media_type="application/octet-stream", headers=headers)

    return router
