"""From what was read to what may be planned on: the usable cards, and the RAM that can be taken."""

import os
from pathlib import Path
from typing import Final

import psutil

from brain_node.gpu.records import Gpu, GpuKind, Inventory
from brain_node.plan.machine import Card, Machine

CGROUP: Final = Path("/sys/fs/cgroup")


def machine_of(inventory: Inventory, cgroup: Path = CGROUP) -> Machine:
    """The machine as the planner sees it. Blocks for a moment: it reads what the system says about RAM."""
    memory = psutil.virtual_memory()
    limit, used = _cgroup_limit(cgroup)
    total = memory.total if limit is None else min(memory.total, limit)
    available = memory.available if limit is None else min(memory.available, max(0, limit - used))
    return Machine(
        cards=tuple(card for gpu in inventory.usable if (card := card_of(gpu)) is not None),
        ram_available_bytes=available,
        ram_total_bytes=total,
        cpu_count=len(os.sched_getaffinity(0)),
    )


def card_of(gpu: Gpu) -> Card | None:
    """The planner's view of a card; `None` for one whose memory or name is not known."""
    if gpu.uuid is None or gpu.total_bytes is None or gpu.free_bytes is None:
        return None
    return Card(
        uuid=gpu.uuid,
        name=gpu.name or "unknown card",
        index=gpu.index,
        total_bytes=gpu.total_bytes,
        free_bytes=gpu.free_bytes,
        compute_capability=gpu.compute_capability,
        alone=gpu.kind is not GpuKind.DISCRETE,
    )


def _cgroup_limit(cgroup: Path) -> tuple[int | None, int]:
    """The container's memory limit and what of it is in use; `None` where there is no limit."""
    try:
        limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
        used = (cgroup / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None, 0
    return (int(limit), int(used)) if limit.isdigit() and used.isdigit() else (None, 0)
