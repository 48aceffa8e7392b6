"""How long nodes were connected while the coordinator itself was up. Pure but for the ticks that feed it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from brain_coord.store.records import Uptime

PERIOD_S: Final = 10.0
"""How often a tick is due."""

DAY_S: Final = 24 * 3600.0

RETURN_S: Final = 60.0
"""How long after its own start the coordinator waits for nodes: being away then is the outage's doing, not theirs."""


@dataclass(slots=True)
class UptimeMeter:
    """Adds up ticks until they are flushed. A tick that comes late (the coordinator stood still) counts as one period."""

    _last: float | None = None
    _began: float = 0.0
    _returned: set[str] = field(default_factory=set)
    _pending: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def tick(self, nodes: Iterable[tuple[str, bool]], now: float, wall_s: float) -> list[Uptime]:
        """The time since the last tick went to each node as `(id, connected)` says.

        Of nodes that are not back yet nothing is counted for a while after the coordinator's own start.

        Args:
            nodes: every node known, and whether it is connected.
            now: seconds of the monotonic clock; durations come from it alone.
            wall_s: seconds since 1970; it only names the day.

        Returns:
            what was added, for whoever keeps a running score.
        """
        last, self._last = self._last, now
        if last is None:
            self._began = now
        returning = now - self._began < RETURN_S
        passed_s = 0.0 if last is None else min(now - last, 2 * PERIOD_S)
        day = int(wall_s // DAY_S)
        added = []
        for node_id, connected in nodes:
            if connected:
                self._returned.add(node_id)
            elif returning and node_id not in self._returned:
                continue
            if not passed_s:
                continue
            kept = self._pending.setdefault((node_id, day), [0.0, 0.0])
            kept[0] += passed_s if connected else 0.0
            kept[1] += passed_s
            added.append(Uptime(node_id, day, passed_s if connected else 0.0, passed_s))
        return added

    def flush(self) -> list[Uptime]:
        """What was added since the last flush, to be written down."""
        pending, self._pending = self._pending, {}
        return [
            Uptime(node_id, day, round(connected_s, 3), round(observed_s, 3))
            for (node_id, day), (connected_s, observed_s) in pending.items()
        ]
