"""Plans as JSON: the shapes that `brain-node models --json` and the check script print."""

from collections.abc import Sequence
from typing import Any

from brain_node.contract.catalog import Catalog, Model
from brain_node.plan.machine import Machine
from brain_node.plan.nameplate import class_gb, meets_class
from brain_node.plan.records import Placement, Plan, Refusal


def plan_json(plan: Plan) -> dict[str, Any]:
    """A whole plan."""
    return {
        "placements": [placement_json(placement) for placement in plan.placements],
        "refusals": [refusal_json(refusal) for refusal in plan.refusals],
    }


def placement_json(placement: Placement) -> dict[str, Any]:
    """One engine to start; sizes in bytes."""
    return {
        "model": placement.model.id,
        "device": placement.device,
        "gpu_uuids": list(placement.gpu_uuids),
        "gpu_indices": list(placement.gpu_indices),
        "tensor_parallel": placement.tensor_parallel,
        "gpu_memory_utilization": placement.gpu_memory_utilization,
        "max_model_len": placement.max_model_len,
        "slots": placement.slots,
        "kv_cache_bytes": placement.kv_cache_bytes,
        "kv_cache_tokens": placement.kv_cache_tokens,
        "needed_bytes": placement.needed_bytes,
        "budget_bytes": placement.budget_bytes,
        "replica": placement.replica,
    }


def refusal_json(refusal: Refusal) -> dict[str, Any]:
    """One model that is not placed."""
    return {
        "model": refusal.model_id,
        "code": refusal.code,
        "message": refusal.message,
        "next_step": refusal.next_step,
        "needed_bytes": refusal.needed_bytes,
        "free_bytes": refusal.free_bytes,
    }


def survey_json(catalog: Catalog, machine: Machine, answers: Sequence[Placement | Refusal]) -> list[dict[str, Any]]:
    """The catalog against this machine, in catalog order."""
    return [_model_json(model, machine, answer) for model, answer in zip(catalog, answers, strict=True)]


def _model_json(model: Model, machine: Machine, answer: Placement | Refusal) -> dict[str, Any]:
    placed = isinstance(answer, Placement)
    return {
        "id": model.id,
        "name": model.name,
        "params_b": model.params_b,
        "license": model.license,
        "gated": model.gated,
        "device": model.device.value,
        "mock": model.mock,
        "context": model.context,
        "max_context": model.max_context,
        "min_vram_mib": model.min_vram_mib,
        "class_gb": class_gb(model.min_vram_bytes),
        "class_met_by": [c.uuid for c in machine.cards if meets_class(c.total_bytes, model.min_vram_bytes)],
        "fits": placed,
        "placement": placement_json(answer) if isinstance(answer, Placement) else None,
        "refusal": refusal_json(answer) if isinstance(answer, Refusal) else None,
    }
