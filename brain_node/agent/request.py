"""What the operator wants served, as the planner is asked for it: by `join`, and by the commands that look ahead."""

from brain_node.plan.records import AUTO, PlanRequest
from brain_node.settings import Settings, SettingsError


def request_of(settings: Settings) -> PlanRequest:
    """The planner's question.

    Raises:
        SettingsError: `auto` stands beside a name.
    """
    if AUTO in settings.models and len(set(settings.models)) > 1:
        raise SettingsError(
            f"{settings.sources['models']}: `{AUTO}` leaves the whole choice to the node, and models are named beside it",
            f"--model {AUTO} alone, or names alone",
        )
    return PlanRequest(
        models=tuple(dict.fromkeys(settings.models)) or (AUTO,),
        context=settings.context,
        slots=settings.slots,
        gated=settings.hf_token is not None,
    )
