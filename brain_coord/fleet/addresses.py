"""Who joins from where: limits for each network address, and the view of it that only the operator gets. Pure.

Many ids from one machine gain nothing by themselves (each starts at 70, each shares the machine's one speed), but they
cost places in everybody's ranking. So one address may hold so many sessions, bring so many new ids a day, and try so often.
An address is an IPv4 address or an IPv6 /64, which one household gets whole. Loopback is not limited: that is the
operator's own machine, or a proxy that was not named with --trusted-proxy.
"""

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

DAY_S: Final = 24 * 3600.0
MINUTE_S: Final = 60.0
REMEMBERED: Final = 20_000
"""Addresses that are remembered; the longest unseen without a session goes first."""


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """Bounds for one address."""

    sessions: int = 32
    """Nodes connected at a time."""
    new_ids_a_day: int = 64
    """Ids that were never seen before."""
    attempts_a_minute: int = 120
    """Handshakes, good or bad: a room of machines behind one address may return at once."""
    exempt_loopback: bool = True


@dataclass(slots=True)
class _Place:
    nodes: dict[str, int] = field(default_factory=dict)
    """Open sessions by node id."""
    seen: "OrderedDict[str, float]" = field(default_factory=OrderedDict)
    new: deque[float] = field(default_factory=deque)
    attempts: deque[float] = field(default_factory=deque)
    refused: int = 0
    last: float = 0.0


@dataclass(slots=True)
class AddressBook:
    """Sessions and attempts by address; times in seconds of the monotonic clock."""

    limits: AddressLimits = field(default_factory=AddressLimits)
    _places: "OrderedDict[str, _Place]" = field(default_factory=OrderedDict)

    def attempt(self, address: str, now: float) -> str | None:
        """A handshake begins; why it has to wait, or `None`."""
        place = self._place(address, now)
        _forget(place.attempts, now - MINUTE_S)
        if self._limited(address) and len(place.attempts) >= self.limits.attempts_a_minute:
            place.refused += 1
            return f"more than {self.limits.attempts_a_minute} handshakes a minute from one address"
        place.attempts.append(now)
        return None

    def admit(self, address: str, node_id: str, now: float, *, known: bool) -> str | None:
        """A node proved its id; why it may not join from here, or `None`.

        Args:
            address: of the other end.
            node_id: as proved.
            now: monotonic seconds.
            known: it has joined before, from wherever.
        """
        place = self._place(address, now)
        _forget(place.new, now - DAY_S)
        if self._limited(address):
            if node_id not in place.nodes and len(place.nodes) >= self.limits.sessions:
                place.refused += 1
                return f"{len(place.nodes)} nodes are connected from this address already"
            if not known and len(place.new) >= self.limits.new_ids_a_day:
                place.refused += 1
                return f"{len(place.new)} new nodes came from this address within a day"
        return None

    def joined(self, address: str, node_id: str, now: float, *, known: bool) -> None:
        """A session of the node opened."""
        place = self._place(address, now)
        place.nodes[node_id] = place.nodes.get(node_id, 0) + 1
        place.seen[node_id] = now
        place.seen.move_to_end(node_id)
        while len(place.seen) > 4 * self.limits.sessions + self.limits.new_ids_a_day:
            place.seen.popitem(last=False)
        if not known:
            place.new.append(now)

    def left(self, address: str, node_id: str) -> None:
        """A session of the node ended; exactly once for each `joined`."""
        place = self._places.get(network_of(address))
        if place is not None and node_id in place.nodes:
            place.nodes[node_id] -= 1
            if place.nodes[node_id] == 0:
                del place.nodes[node_id]

    def view(self, now: float) -> list[dict[str, Any]]:
        """Every address with who is there; for the operator alone."""
        rows = []
        for address, place in self._places.items():
            _forget(place.new, now - DAY_S)
            _forget(place.attempts, now - MINUTE_S)
            rows.append(
                {
                    "address": address,
                    "connected": sorted(place.nodes),
                    "seen": sorted(place.seen),
                    "new_ids_last_day": len(place.new),
                    "attempts_last_minute": len(place.attempts),
                    "refused": place.refused,
                    "last_seen_s_ago": round(now - place.last, 1),
                }
            )
        return sorted(rows, key=lambda row: (-len(row["connected"]), -len(row["seen"]), row["address"]))

    def _place(self, address: str, now: float) -> _Place:
        network = network_of(address)
        place = self._places.get(network)
        if place is None:
            place = self._places[network] = _Place()
            if len(self._places) > REMEMBERED:
                unused = next((name for name, each in self._places.items() if not each.nodes), None)
                if unused is not None:
                    del self._places[unused]
        self._places.move_to_end(network)
        place.last = now
        return place

    def _limited(self, address: str) -> bool:
        if not self.limits.exempt_loopback:
            return True
        try:
            return not ipaddress.ip_address(address).is_loopback
        except ValueError:
            return True


def network_of(address: str) -> str:
    """What counts as one place: an IPv4 address, an IPv6 /64; text that is no address stands for itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _forget(times: deque[float], before: float) -> None:
    while times and times[0] < before:
        times.popleft()
