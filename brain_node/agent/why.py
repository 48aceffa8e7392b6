"""What the coordinator told this node lately, counted by reason: the answer to `brain-node why`."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from brain_node.contract.messages import Notice, printable

KEPT: Final = 500
WINDOW_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Said:
    """One notice, and when it came: monotonic seconds decide its age, the wall time is a label only."""

    at: float
    wall: float
    code: str
    message: str


class Notices:
    """The notices of the last hour. Of skip counts the newest alone is kept, of other data nothing: it could be large."""

    def __init__(self) -> None:
        self._said: deque[Said] = deque(maxlen=KEPT)
        self._skipped: tuple[float, dict[str, int]] | None = None

    def add(self, notice: Notice, now: float, wall: float) -> None:
        """Keep one notice; `now` is monotonic and decides its age."""
        counts = notice.data.get("skipped") if notice.data else None
        if isinstance(counts, dict):  # they stand for themselves
            shown = {printable(reason): count for reason, count in counts.items() if type(count) is int}
            self._skipped = (now, shown)
        else:
            self._said.append(Said(now, wall, notice.code, notice.message))

    def summary(self, now: float) -> dict[str, Any]:
        """Notices by code with how often they came, and the skip counts the coordinator sent last."""
        by_code: dict[str, dict[str, Any]] = {}
        for said in self._said:
            if now - said.at <= WINDOW_S:
                row = by_code.setdefault(said.code, {"count": 0})
                row.update(count=row["count"] + 1, message=said.message, at=said.wall)
        rows = [{"code": code, **row} for code, row in by_code.items()]
        if self._skipped is not None and now - self._skipped[0] > WINDOW_S:
            self._skipped = None
        return {
            "window_s": WINDOW_S,
            "notices": sorted(rows, key=lambda r: (-r["count"], r["code"])),
            "skipped": self._skipped[1] if self._skipped else None,
        }
