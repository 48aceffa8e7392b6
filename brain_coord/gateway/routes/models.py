"""`GET /v1/models` in OpenAI's shape."""

from typing import Any

from fastapi import APIRouter

from brain_coord.gateway.errors import fault
from brain_coord.gateway.request import MODEL_CHARS
from brain_coord.gateway.routes.context import ApiContext, Context, KnownCaller
from brain_coord.routing.inputs import AUTO_MODEL

router = APIRouter(tags=["models"])


def _entry(model: str, classes: list[str]) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "brain", "brain": {"classes": classes}}


def _offers(context: ApiContext) -> dict[str, list[str]]:
    """Every model on offer now and the classes that offer it; `brain/auto` last, if there is any."""
    offers = dict(sorted(context.gateway.decider.models().items()))
    if offers:
        offers[AUTO_MODEL] = sorted({name for classes in offers.values() for name in classes})
    return offers


@router.get("/v1/models")
async def list_models(context: Context, _caller: KnownCaller) -> dict[str, Any]:
    """Every model on offer now, and `brain/auto`."""
    return {"object": "list", "data": [_entry(model, classes) for model, classes in _offers(context).items()]}


@router.get("/v1/models/{model:path}")
async def get_model(model: str, context: Context, _caller: KnownCaller) -> dict[str, Any]:
    """One model."""
    offers = _offers(context)
    if model not in offers:
        hint = context.gateway.decider.hint(model[:MODEL_CHARS], offers)
        raise fault("model_not_found", f"no class offers {model[:MODEL_CHARS]} now{hint}", param="model")
    return _entry(model, offers[model])
