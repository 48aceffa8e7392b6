"""`POST /v1/route`: the decision for a request, nothing executed."""

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from brain_coord.gateway.dialects import CHAT, DIALECTS
from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import headers_of, read_body
from brain_coord.gateway.openapi import GENERATION_BODY, json_body
from brain_coord.gateway.request import LARGE_BYTES, parse_request
from brain_coord.gateway.routes.context import Context, KnownCaller
from brain_coord.routing.node_decision import ALL_LISTED

router = APIRouter(tags=["routing"])


@router.post("/v1/route", openapi_extra=json_body(GENERATION_BODY), response_model=dict[str, Any])
async def route(
    request: Request, context: Context, caller: KnownCaller, path: str = CHAT.path
) -> dict[str, Any] | Response:
    """What would happen to this body on `path` (a chat request by default), with both decisions and the sentence."""
    dialect = DIALECTS.get(path)
    if dialect is None:
        raise fault("invalid_field", f"`path` must be one of {', '.join(DIALECTS)}", param="path")
    headers, bounds = headers_of(request.scope), context.gateway.settings
    raw = await read_body(
        request.receive,
        headers,
        limit_bytes=bounds.body_bytes,
        idle_s=bounds.body_idle_s,
        least_bytes_per_s=bounds.body_bytes_per_s,
    )
    if len(raw) > LARGE_BYTES:  # as of a request that is meant: streams must not wait while it is read
        parsed = await asyncio.to_thread(parse_request, "dry-run", dialect, raw, headers)
    else:
        parsed = parse_request("dry-run", dialect, raw, headers)
    decision = context.gateway.decider.decide(parsed, caller)
    passed_over = decision.passed_over()
    told = {
        "sentence": decision.sentence(passed_over),
        "worth_waiting": decision.worth_waiting,
        "passed_over": [each.to_dict() for each in passed_over],
        "class": decision.class_decision.to_dict(),
    }
    node = decision.node_decision
    if node is None or node.unlisted is ALL_LISTED:
        return {**told, "node": None if node is None else node.to_dict()}
    whole = context.gateway.decider.whole(decision, node)
    # Of thousands of nodes: neither told nor written on the event loop.
    body = await asyncio.to_thread(lambda: orjson.dumps({**told, "node": whole().to_dict()}))
    return Response(body, media_type="application/json")
