"""The fleet as anybody may see it: claims beside measurements, no addresses and no keys."""

from time import monotonic
from typing import Any

from fastapi import APIRouter

from brain_coord.gateway.errors import fault
from brain_coord.gateway.routes.context import Context

router = APIRouter(tags=["nodes"])


@router.get("/v1/nodes")
async def list_nodes(context: Context) -> dict[str, Any]:
    """Every node this coordinator has seen, by id."""
    return {"object": "list", "data": [node.public_view() for node in context.registry]}


@router.get("/v1/nodes/{node_id}")
async def get_node(node_id: str, context: Context) -> dict[str, Any]:
    """One node, with why requests passed it by within the last hour."""
    node = context.registry.get(node_id)
    if node is None:
        raise fault("not_found", f"no node {node_id} has joined")
    return {**node.public_view(), "skips": node.skip_counts(monotonic())}
