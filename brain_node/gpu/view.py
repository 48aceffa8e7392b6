"""An inventory as JSON: the shape that `brain-node gpus --json` prints."""

from typing import Any

from brain_node.gpu.feed import Reading
from brain_node.gpu.records import Gpu, Problem
from brain_node.plan.nameplate import nameplate_gb


def reading_json(reading: Reading) -> dict[str, Any]:
    """The whole reading; sizes in bytes, unknown values null."""
    inventory = reading.inventory
    return {
        "gpus": [gpu_json(gpu) for gpu in inventory.gpus],
        "driver": inventory.driver,
        "cuda": inventory.cuda,
        "age_s": None if reading.age_s is None else round(reading.age_s, 3),
        "problems": [problem_json(problem) for problem in reading.problems],
    }


def problem_json(problem: Problem) -> dict[str, str]:
    """One problem."""
    return {"code": problem.code, "message": problem.message, "next_step": problem.next_step}


def gpu_json(gpu: Gpu) -> dict[str, Any]:
    """One card or slice."""
    capability = gpu.compute_capability
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "kind": gpu.kind.value,
        "state": gpu.state.value,
        "reason": gpu.reason,
        "nameplate_gb": None if gpu.total_bytes is None else nameplate_gb(gpu.total_bytes),
        "total_bytes": gpu.total_bytes,
        "free_bytes": gpu.free_bytes,
        "reserved_bytes": gpu.reserved_bytes,
        "used_by_others_bytes": gpu.used_by_others_bytes,
        "visible": gpu.visible,
        "utilization_percent": gpu.utilization_percent,
        "temperature_c": gpu.temperature_c,
        "power_w": gpu.power_w,
        "power_limit_w": gpu.power_limit_w,
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "pci_bus_id": gpu.pci_bus_id,
        "parent_uuid": gpu.parent_uuid,
        "mig_index": gpu.mig_index,
        "processes": [{"pid": process.pid, "used_bytes": process.used_bytes} for process in gpu.processes],
    }
