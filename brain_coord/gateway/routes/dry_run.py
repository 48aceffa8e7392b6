"""`POST /v1/route`: the decision for a request, nothing executed."""

from typing import Any

from fastapi import APIRouter, Request

from brain_coord.gateway.dialects import CHAT, DIALECTS
from brain_coord.gateway.errors import fault
from brain_coord.gateway.request import parse_request
from brain_coord.gateway.routes.context import Context, KnownCaller

router = APIRouter(tags=["routing"])


@router.post("/v1/route")
async def route(request: Request, context: Context, caller: KnownCaller, path: str = CHAT.path) -> dict[str, Any]:
    """What would happen to this body on `path` (a chat request by default), with both decisions and the sentence."""
    dialect = DIALECTS.get(path)
    if dialect is None:
        raise fault("invalid_field", f"`path` must be one of {', '.join(DIALECTS)}", param="path")
    parsed = parse_request("dry-run", dialect, await request.body(), dict(request.headers))
    decision = context.gateway.decider.decide(parsed, caller)
    return {"sentence": decision.sentence(), "worth_waiting": decision.worth_waiting, **decision.routing().to_dict()}
