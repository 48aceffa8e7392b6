"""Whether the coordinator lives, and whether it should get requests."""

from typing import Any

from fastapi import APIRouter, Response

from brain_coord.gateway.routes.context import Context

router = APIRouter(tags=["health"])


@router.api_route("/healthz", methods=["GET", "HEAD"])
async def healthz(context: Context) -> dict[str, Any]:
    """200 while the process answers."""
    return {"status": "ok", "version": context.version, "loop_lag_ms": round(context.lag.last_s * 1000, 3)}


@router.api_route("/readyz", methods=["GET", "HEAD"])
async def readyz(context: Context, response: Response) -> dict[str, Any]:
    """503 while shutting down, or while requests could not be recorded."""
    health = context.receipts.health()
    ready = not context.gateway.draining and health["state"] != "refusing"
    if not ready:
        response.status_code = 503
    return {"ready": ready, "draining": context.gateway.draining, "receipts": health}
