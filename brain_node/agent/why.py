"""What the coordinator told this node lately, counted by reason: the answer to `brain-node why`."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from brain_node.contract.messages import Notice, printable

KEPT: Final = 500
WINDOW_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Said:
    """One notice, and when it came (wall time, a label only)."""

    at: float
    code: str
    message: str
    data: dict[str, Any] | None


class Notices:
    """The notices of the last hour."""

    def __init__(self) -> None:
        self._said: deque[tuple[float, Said]] = deque(maxlen=KEPT)

    def add(self, notice: Notice, now: float, wall: float) -> None:
        """Keep one notice; `now` is monotonic and decides its age."""
        self._said.append((now, Said(wall, notice.code, notice.message, notice.data)))

    def recent(self, now: float) -> list[Said]:
        """Those of the last hour, oldest first."""
        return [said for at, said in self._said if now - at <= WINDOW_S]

    def summary(self, now: float) -> dict[str, Any]:
        """Notices by code with how often they came, and the skip counts the coordinator sent last."""
        recent = self.recent(now)
        by_code: dict[str, dict[str, Any]] = {}
        skipped: dict[str, Any] | None = None
        for said in recent:
            if said.data and isinstance(said.data.get("skipped"), dict):
                counts = said.data["skipped"].items()
                skipped = {printable(reason): count for reason, count in counts if type(count) is int}
                continue  # its counts stand for themselves
            row = by_code.setdefault(said.code, {"count": 0})
            row.update(count=row["count"] + 1, message=said.message, at=said.at)
        rows = [{"code": code, **row} for code, row in by_code.items()]
        return {
            "window_s": WINDOW_S,
            "notices": sorted(rows, key=lambda r: (-r["count"], r["code"])),
            "skipped": skipped,
        }
