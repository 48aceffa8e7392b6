"""Pure arithmetic of a card's memory: what is reserved, what others use, what is free.

Since driver 510 the old memory call counts what the driver reserves for itself as used, so an idle card looks taken by
300 to 900 MiB. The second version of the call tells both apart; without it, only what processes hold counts as used.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from brain_node.gpu.records import GpuProcess


@dataclass(frozen=True, slots=True)
class Memory:
    """A card's memory in bytes; `reserved + used + free == total`."""

    total_bytes: int
    reserved_bytes: int
    used_bytes: int
    free_bytes: int


def from_second_version(total: int, reserved: int, used: int, free: int) -> Memory:
    """Memory as the newer call tells it; what its figures leave over is counted as reserved."""
    return Memory(total, max(reserved, total - used - free), used, free)


def from_first_version(total: int, used: int, free: int, processes: Sequence[GpuProcess] | None) -> Memory:
    """Memory as the old call tells it.

    Args:
        total: Bytes of the card.
        used: Bytes that are not free, what the driver reserves included.
        free: Bytes that are free.
        processes: Who uses the card; `None` when the driver does not say.
    """
    known = None if processes is None else _sum_if_known(processes)
    if known is None:
        # Better to see a neighbour who is not there than to start an engine on memory that is taken.
        return Memory(total, total - used - free, used, free)
    by_processes = min(known, used)
    return Memory(total, total - by_processes - free, by_processes, free)


def used_by_others(memory: Memory, processes: Sequence[GpuProcess], own_pids: Collection[int]) -> int:
    """Bytes used by processes that are not ours."""
    own = sum(process.used_bytes or 0 for process in processes if process.pid in own_pids)
    return max(0, memory.used_bytes - own)


def _sum_if_known(processes: Sequence[GpuProcess]) -> int | None:
    total = 0
    for process in processes:
        if process.used_bytes is None:
            return None
        total += process.used_bytes
    return total
