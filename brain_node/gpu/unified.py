"""Cards that share the machine's RAM: which ones they are, and how much of that RAM they may count on.

The driver tells no memory for them, or tells all RAM as theirs even when other programs hold half of it. So their free
memory follows `MemAvailable`, less a reserve that keeps the system itself alive. A discrete card is never treated so: one
whose memory the driver does not tell is unsupported, not a card with as much memory as the machine has RAM.
"""

import re
from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
GIB: Final = 1 << 30

RESERVE_FRACTION: Final = 0.05
RESERVE_FLOOR_BYTES: Final = 2 * GIB
"""Kept back for the system: 5 % of all RAM, at least 2 GiB."""

_NAMES: Final = re.compile(r"\b(GB10|N1X|Orin|Thor|Xavier|Tegra|Jetson)\b", re.IGNORECASE)
_CAPABILITIES: Final = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Compute capabilities that only integrated chips have: Xavier, Orin, Thor (twice), GB10."""


@dataclass(frozen=True, slots=True)
class SystemMemory:
    """The machine's RAM in bytes."""

    total_bytes: int
    available_bytes: int
    """What can be taken without swapping, as the kernel estimates it."""

    @property
    def reserve_bytes(self) -> int:
        """What is kept back for the system."""
        return min(self.total_bytes, max(RESERVE_FLOOR_BYTES, int(self.total_bytes * RESERVE_FRACTION)))


def parse_meminfo(text: str) -> SystemMemory | None:
    """Read the text of `/proc/meminfo`; `None` when it does not hold both figures."""
    kib = {key: int(value) for key, value in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text, re.MULTILINE)}
    if len(kib) < 2:
        return None
    total = kib["MemTotal"] * KIB
    return SystemMemory(total, min(total, kib["MemAvailable"] * KIB))


def is_unified(name: str | None, compute_capability: tuple[int, int] | None) -> bool:
    """Whether this card shares the machine's RAM, by its name or by a capability that only such chips have."""
    return bool(name and _NAMES.search(name)) or compute_capability in _CAPABILITIES
