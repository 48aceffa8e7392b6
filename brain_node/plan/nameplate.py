"""Pure: the size a card is sold under, against the bytes it reports.

A card sold as 24 GB reports 24564 MiB, 23028 MiB, or 22919 MiB with error correction on. So a requirement that is written
as a card size is met by every card sold under that size: those that report at least `TOLERANCE` of it. This tells which
cards a model is *meant for*; whether it is launched is decided by the bytes that are free.
"""

from typing import Final

GIB: Final = 1 << 30

TOLERANCE: Final = 0.92
"""Smallest share of its nameplate that a card reports (inline error correction takes a sixteenth, the driver a little)."""

NAMEPLATES_GB: Final = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 14, 16, 18, 20, 24, 32, 36, 40, 48, 64, 72, 80, 94, 96),
    *(128, 141, 180, 192, 256, 288),
)


def nameplate_gb(total_bytes: int) -> int:
    """The size in GB that a card with this much memory is sold under; whole GiB for one that is none of the known."""
    gib = total_bytes / GIB
    fitting = [size for size in NAMEPLATES_GB if TOLERANCE * size <= gib <= 1.03 * size]
    return min(fitting, key=lambda size: (abs(size - gib), size)) if fitting else max(1, round(gib))


def meets_class(total_bytes: int, required_bytes: int) -> bool:
    """Whether a card is of the class that a requirement means.

    A requirement that is exactly a card size (24 GiB) means the cards sold under it; any other is met by its bytes.
    """
    size = required_bytes / GIB
    if size in NAMEPLATES_GB:
        return total_bytes >= TOLERANCE * required_bytes
    return total_bytes >= required_bytes


def class_gb(required_bytes: int) -> int | None:
    """The smallest card size of which *every* card meets a requirement; `None` when no single card is large enough."""
    size = required_bytes / GIB
    for nameplate in NAMEPLATES_GB:
        if size == nameplate or size <= TOLERANCE * nameplate:
            return nameplate
    return None
