"""The fleet as all coordinators of a cluster see it together, merged from what each says of the nodes linked to it. Pure.

Each coordinator (a *replica*) publishes numbered messages; a gap in the numbers asks for all of it again. It is heard at
least once in a while, or it counts as gone, and so do its links. Two replicas may claim one node for a moment, when it
came back at another one: the higher epoch wins, everywhere, and the loser ends its session.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

PROTOCOL: Final = 2
"""Of these messages and of the hop. Coordinators of another one go on by themselves until all are of one version."""

CLOCKS_S: Final = 60.0
"""Wall clocks that differ by more are told of."""


class Kind(StrEnum):
    """What a message led to."""

    NODE = "node"  # who holds a node, or what is known of it, may have changed
    LOAD = "load"  # only the number of its jobs did
    CAME = "came"  # a replica was heard for the first time, or anew after a restart
    LEFT = "left"  # a replica is gone, or stops and takes no more jobs
    ASK = "ask"  # messages of a replica were missed: ask it for all of it
    TELL = "tell"  # somebody missed some of ours
    DECIDED = "decided"  # an operator decided something about a node
    STRANGER = "stranger"  # another replica speaks another protocol
    TWIN = "twin"  # another replica bears our name


class Effect(NamedTuple):
    """One consequence: `subject` is a node id or a replica's name."""

    kind: Kind
    subject: str


@dataclass(slots=True)
class Claim:
    """A replica says that a node is linked to it.

    Attributes:
        facts: claims and measurements, as `cluster.facts` writes them.
        running: jobs on the node.
        given: those of them that came from other replicas, by name.
    """

    replica: str
    epoch: int
    facts: Mapping[str, Any]
    running: int = 0
    given: Mapping[str, int] = field(default_factory=dict)

    def others(self, name: str) -> int:
        """Jobs on it that one replica did not give."""
        return max(0, self.running - self.given.get(name, 0))


@dataclass(slots=True)
class Peer:
    """Another replica. Times in seconds of the monotonic clock.

    Attributes:
        run: tells one process under this name from the next.
        earlier: the processes before it. If one of them is heard again, two bear the name, and the newest has it.
        address: where its hop is served.
        reachable: whether our last job reached it there; what it says is taken in all the same.
        clock_ahead: how far its monotonic clock is ahead of ours; what we send it is dated by that.
        seq: the number of its last message that was taken in; `None` while all of it is awaited.
        stale: nodes that it has not named again since it began to tell all of it.
    """

    name: str
    run: str
    address: str
    heard_at: float
    leaving: bool = False
    reachable: bool = True
    clock_ahead: float = 0.0
    seq: int | None = None
    stale: set[str] = field(default_factory=set)
    earlier: frozenset[str] = frozenset()

    @property
    def takes_jobs(self) -> bool:
        """Whether we may give it jobs."""
        return self.reachable and not self.leaving


class SharedView:
    """The view of one replica.

    Args:
        name: its own name.
        run: of its own process.
        ttl_s: a replica that was not heard for longer is gone.
    """

    def __init__(self, name: str, run: str, ttl_s: float) -> None:
        self.name = name
        self.run = run
        self.ttl_s = ttl_s
        self.peers: dict[str, Peer] = {}
        self.own: dict[str, int] = {}
        """Epochs of the sessions here, by node id."""
        self._drawn = 0
        self._claims: dict[str, dict[str, Claim]] = {}

    # --- our own links ------------------------------------------------------------------------------------------------

    def claim(self, node_id: str, wall_ms: int) -> int:
        """A node was linked here: the epoch of its session, above all that are known of it, and all that were drawn here.

        Wall clocks order sessions that know nothing of each other; where the other one is known, clocks do not matter.
        """
        known = [claim.epoch for claim in self._claims.get(node_id, {}).values()]
        self._drawn = self.own[node_id] = max(wall_ms, self._drawn + 1, *(each + 1 for each in known))
        return self._drawn

    def release(self, node_id: str) -> None:
        """A session here ended."""
        self.own.pop(node_id, None)

    def holder(self, node_id: str) -> Claim | None:
        """The claim of the replica that holds a node's link; `None` when we hold it, or nobody does who takes our jobs."""
        claims = [claim for claim in self._claims.get(node_id, {}).values() if self.peers[claim.replica].takes_jobs]
        best = max(claims, key=lambda claim: (claim.epoch, claim.replica), default=None)
        own = self.own.get(node_id)
        if best is None or (own is not None and (own, self.name) > (best.epoch, best.replica)):
            return None
        return best

    def claimed(self, node_id: str) -> bool:
        """Whether another replica says that a node is linked to it, though it may take no jobs of ours."""
        return node_id in self._claims

    def present(self) -> list[str]:
        """The names of all replicas that take our jobs, our own among them, in order."""
        return sorted([self.name, *(peer.name for peer in self.peers.values() if peer.takes_jobs)])

    def leader(self) -> str:
        """The name of the first of all replicas that are heard and stay."""
        return min([self.name, *(peer.name for peer in self.peers.values() if not peer.leaving)])

    # --- what the others say ------------------------------------------------------------------------------------------

    def hear(self, message: Mapping[str, Any], now: float) -> list[Effect]:
        """Take in one message; `now` in seconds of the monotonic clock."""
        name, run, kind = message["from"], message["run"], message["type"]
        if name == self.name:
            return [] if run == self.run else [Effect(Kind.TWIN, name)]
        effects: list[Effect] = []
        peer = self.peers.get(name)
        if peer is not None and peer.run == run:
            peer.heard_at = now  # a beat may wait behind much else
        earlier: frozenset[str] = frozenset()
        if peer is not None and run in peer.earlier:
            return []
        if kind == "beat" and message.get("protocol") != PROTOCOL:
            return [*([] if peer is None else self._drop(peer)), Effect(Kind.STRANGER, name)]
        if kind == "beat":
            if peer is not None and peer.run != run:
                effects += self._drop(peer)
                earlier = peer.earlier | {peer.run}
                peer = None
            if peer is None:
                peer = self.peers[name] = Peer(name, run, message["address"], now, earlier=earlier)
                effects += [Effect(Kind.CAME, name), Effect(Kind.ASK, name)]
            elif peer.seq is not None and message["seq"] > peer.seq:
                peer.seq = None  # what it said last did not reach us
                effects.append(Effect(Kind.ASK, name))
            elif peer.seq is None:
                effects.append(Effect(Kind.ASK, name))  # our question, or its answer, was lost
            peer.address, peer.clock_ahead = message["address"], message["clock"] - now
            if message["leaving"] and not peer.leaving:
                peer.leaving = True
                effects += [Effect(Kind.NODE, node_id) for node_id in self._of(name)]
                effects.append(Effect(Kind.LEFT, name))
        elif kind == "ask":
            if self.name in message["of"]:
                effects.append(Effect(Kind.TELL, name))
        elif kind == "decided":
            effects.append(Effect(Kind.DECIDED, message["node"]))
        elif kind == "nodes" and peer is not None and peer.run == run:
            effects += self._nodes(peer, message)
        return effects

    def _nodes(self, peer: Peer, message: Mapping[str, Any]) -> list[Effect]:
        seq = message["seq"]
        if message.get("first"):
            peer.stale = set(self._of(peer.name))
        elif peer.seq is None:
            return []  # all of it was asked for, and is on its way
        elif seq <= peer.seq:
            return []
        elif seq > peer.seq + 1:
            peer.seq = None
            return [Effect(Kind.ASK, peer.name)]
        peer.seq = seq
        effects = []
        for node_id, epoch, facts in message.get("facts", ()):
            before = self._claims.get(node_id, {}).get(peer.name)
            claim = Claim(peer.name, epoch, facts)
            if before is not None and before.epoch == epoch:
                claim.running, claim.given = before.running, before.given
            self._claims.setdefault(node_id, {})[peer.name] = claim
            peer.stale.discard(node_id)
            effects.append(Effect(Kind.NODE, node_id))
        for node_id, running, given in message.get("load", ()):
            known = self._claims.get(node_id, {}).get(peer.name)
            if known is not None:
                known.running, known.given = running, given
                effects.append(Effect(Kind.LOAD, node_id))
        gone: Iterable[str] = message.get("gone", ())
        if message.get("last"):
            gone = [*gone, *peer.stale]
            peer.stale = set()
        return effects + self._forget(peer.name, gone)

    def expire(self, now: float) -> list[Effect]:
        """Let go of the replicas that were not heard for too long."""
        late = [peer for peer in self.peers.values() if now - peer.heard_at > self.ttl_s]
        return [effect for peer in late for effect in self._drop(peer)]

    def reached(self, name: str, *, reachable: bool) -> list[Effect]:
        """Whether what we send reaches a replica. Until then its nodes are out of reach, and not forgotten."""
        peer = self.peers.get(name)
        if peer is None or peer.reachable is reachable:
            return []
        peer.reachable = reachable
        return [Effect(Kind.NODE, node_id) for node_id in self._of(name)]

    def _drop(self, peer: Peer) -> list[Effect]:
        effects = self._forget(peer.name, self._of(peer.name))
        del self.peers[peer.name]
        return [*effects, Effect(Kind.LEFT, peer.name)]

    def _forget(self, name: str, node_ids: Iterable[str]) -> list[Effect]:
        effects = []
        for node_id in node_ids:
            claims = self._claims.get(node_id, {})
            if claims.pop(name, None) is not None:
                effects.append(Effect(Kind.NODE, node_id))
            if not claims:
                self._claims.pop(node_id, None)
        return effects

    def _of(self, name: str) -> Sequence[str]:
        return [node_id for node_id, claims in self._claims.items() if name in claims]
