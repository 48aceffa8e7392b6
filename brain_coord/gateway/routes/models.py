"""`GET /v1/models` in OpenAI's shape."""

from typing import Any

from fastapi import APIRouter

from brain_coord.gateway.errors import fault
from brain_coord.gateway.routes.context import Context, KnownCaller
from brain_coord.routing.inputs import AUTO_MODEL

router = APIRouter(tags=["models"])


def _entry(model: str, classes: list[str]) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "brain", "brain": {"classes": classes}}


@router.get("/v1/models")
async def list_models(context: Context, _caller: KnownCaller) -> dict[str, Any]:
    """Every model on offer now, and `brain/auto`."""
    offers = context.gateway.decider.models()
    auto = [_entry(AUTO_MODEL, sorted({name for classes in offers.values() for name in classes}))] if offers else []
    return {"object": "list", "data": [*(_entry(model, classes) for model, classes in sorted(offers.items())), *auto]}


@router.get("/v1/models/{model:path}")
async def get_model(model: str, context: Context, _caller: KnownCaller) -> dict[str, Any]:
    """One model."""
    offers = context.gateway.decider.models()
    if model not in offers:
        near = context.gateway.decider.catalog.nearest(model)
        raise fault(
            "model_not_found", f"no class offers {model} now; the nearest names are {', '.join(near)}", param="model"
        )
    return _entry(model, offers[model])
