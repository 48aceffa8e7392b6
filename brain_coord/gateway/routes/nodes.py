"""The fleet as anybody may see it: claims beside measurements, no addresses and no keys."""

from time import monotonic
from typing import Any

from fastapi import APIRouter

from brain_coord.gateway.errors import fault
from brain_coord.gateway.routes.context import Context
from brain_node.contract.limits import ID_CHARS
from brain_node.contract.nearest import nearest

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
        near = nearest(node_id[:ID_CHARS].upper(), context.registry.nodes)
        hint = f"; the nearest ids are {', '.join(near)}" if near else ""
        raise fault("not_found", f"no node {node_id[:ID_CHARS]} has joined{hint}")
    return {**node.public_view(), "skips": node.skip_counts(monotonic())}
