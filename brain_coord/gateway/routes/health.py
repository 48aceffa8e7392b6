"""Whether the coordinator lives, and whether it should get requests."""

from typing import Any

from fastapi import APIRouter, Response

from brain_coord.gateway.routes.context import Context

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz(context: Context) -> dict[str, Any]:
    """200 while the process answers."""
    return {"status": "ok", "version": context.version, "loop_lag_ms": round(context.lag.last_s * 1000, 3)}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"description": "The same, with `ready` false."}})
async def readyz(context: Context, response: Response) -> dict[str, Any]:
    """503 while shutting down, or while requests could not be recorded; tells how the cluster stands, if there is one."""
    health, gateway = context.receipts.health(), context.gateway
    draining = gateway.draining or gateway.leaving
    ready = not draining and health["state"] != "refusing"
    if not ready:
        response.status_code = 503
    answer = {"ready": ready, "draining": draining, "receipts": health}
    return answer if context.cluster is None else {**answer, "cluster": context.cluster()}
