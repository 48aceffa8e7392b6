"""Pure: sizes as text, always with their unit."""

from typing import Final

GIB: Final = 1 << 30


def gib(size_bytes: int | None) -> str:
    """A size in GiB with one decimal; `unknown` for `None`."""
    return "unknown" if size_bytes is None else f"{size_bytes / GIB:.1f} GiB"


def gib_apart(needed_bytes: int, had_bytes: int) -> tuple[str, str]:
    """Two unlike sizes with as many decimals as it takes to tell them apart: never "needs 8.0 GiB, has 8.0 GiB"."""
    for decimals in (1, 2, 3):
        needed, had = (f"{size / GIB:.{decimals}f} GiB" for size in (needed_bytes, had_bytes))
        if needed != had:
            return needed, had
    return f"{needed_bytes} bytes", f"{had_bytes} bytes"
