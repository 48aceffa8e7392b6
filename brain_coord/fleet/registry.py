"""The live registry: every node the coordinator knows, its session, and who waits for capacity."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final, Literal, NamedTuple

import structlog

from brain_coord.fleet.health import EMPTY
from brain_coord.fleet.lessons import Lessons
from brain_coord.fleet.liveness import is_silent
from brain_coord.fleet.node import Elsewhere, Node, Session, State
from brain_coord.fleet.skips import Ask, SkipBook
from brain_coord.fleet.snapshot import node_state, unfit_for
from brain_coord.measure.lag import LoopLag
from brain_coord.measure.rtt import RttEstimator
from brain_coord.routing.inputs import ModelNeed
from brain_coord.store.records import Benchmark, Outcome
from brain_node.contract.messages import Heartbeat, Offer, Refusal, Report

log = structlog.get_logger("brain.fleet")

ABSENCE_S: Final = 3600.0
"""A node that was away for longer is measured again."""

_WORKING: Final = frozenset({"ONLINE", "BUSY"})
"""Between these a node goes with each job; whether it could take a request is a question of its free slots."""

Kind = Literal["customer", "shadow", "canary", "benchmark"]


class StateChange(NamedTuple):
    """A node's state became another; `reason` is one line for people."""

    node_id: str
    before: str
    after: str
    reason: str


@dataclass(slots=True)
class Registry:
    """Owned by the event loop's thread: nothing in it awaits, so each change is atomic.

    `on_change` hears of every state change, `on_capacity` of every moment at which a waiting request might go on
    (a slot came free, a node joined, an offer changed), `on_event` of everything that counts for or against a node,
    `on_doubt` of nodes that should be asked something soon.
    """

    heartbeat_s: float
    nodes: dict[str, Node] = field(default_factory=dict)
    tickets: dict[str, Node] = field(default_factory=dict)
    needs: dict[str, ModelNeed] = field(default_factory=dict)
    lessons: Lessons = field(default_factory=Lessons)
    books: dict[bool, SkipBook] = field(default_factory=lambda: {False: SkipBook(), True: SkipBook()})
    """What was asked of the operator's own nodes (`True`) and of all others."""
    on_touch: list[Callable[[Node], None]] = field(default_factory=list)
    """Hears of every change of a node that its snapshot may depend on; must not look at the node at once."""
    on_change: list[Callable[[StateChange], None]] = field(default_factory=list)
    on_gone: list[Callable[[StateChange], None]] = field(default_factory=list)
    """Hears of those changes alone after which a node is OFFLINE, and not of every job."""
    on_capacity: list[Callable[[], None]] = field(default_factory=list)
    on_offer: list[Callable[[Node], None]] = field(default_factory=list)
    on_heartbeat: list[Callable[[Node], None]] = field(default_factory=list)
    on_event: list[Callable[[Node, Outcome], None]] = field(default_factory=list)
    on_doubt: list[Callable[[Node], None]] = field(default_factory=list)
    forward: Callable[[Node, Outcome], None] | None = None
    """Takes what was seen of a node whose link another coordinator holds: that one counts it."""
    on_slots: list[Callable[[Node], None]] = field(default_factory=list)
    """Hears when a node that had collapsed under its jobs is given fewer slots, or more again."""

    def __iter__(self) -> Iterator[Node]:
        """Every node, by ascending id."""
        return iter(sorted(self.nodes.values(), key=lambda node: node.node_id))

    def get(self, node_id: str) -> Node | None:
        """The node with this id."""
        return self.nodes.get(node_id)

    def add(self, node: Node) -> Node:
        """Make a node known."""
        known = self.nodes.setdefault(node.node_id, node)
        if known is node:
            node.watch(partial(self._altered, node))
            self._touched(node)
            self._vouch(node)
            self.books[node.operator].enter(node.tally, self._reason(node))
        return known

    def _altered(self, node: Node) -> None:
        node.changes += 1
        self._touched(node)

    def _touched(self, node: Node) -> None:
        for hook in self.on_touch:
            hook(node)

    def belongs(self, node: Node, *, operator: bool) -> None:
        """Whether the operator runs this node; another kind of join token changes it."""
        if node.operator is not operator:
            self.books[node.operator].charge(node.tally, monotonic())
            node.operator = operator
            self.books[operator].enter(node.tally, self._reason(node))
            self._vouch(node)

    def by_ticket(self, ticket: str) -> Node | None:
        """The node whose open session has this slot ticket."""
        return self.tickets.get(ticket)

    # --- sessions and claims ------------------------------------------------------------------------------------------

    def connect(self, node: Node, session: Session, report: Report, offer: Offer, refused: tuple[Refusal, ...]) -> None:
        """A hello was accepted. An older session of the same node is superseded and closed by the caller."""
        before = node.state
        if node.session is not None:
            self._retire(node, "superseded by a newer session")
        self._returned(node, session.joined_at)
        if node.elsewhere is not None:
            node.measured.rtt = RttEstimator()  # the other coordinator timed another line
        node.session, node.elsewhere = session, None
        self._reports(node, report)
        node.reported.offer, node.reported.refused = offer, refused
        node.reported.draining = False
        self.tickets[session.ticket] = node
        self._changed(node, before, "joined")
        self._offered(node)

    def _returned(self, node: Node, now: float) -> None:
        wall_s = time.time()
        if node.left_at is not None:
            away_s = now - node.left_at
        else:
            away_s = 0.0 if node.last_seen_s is None else wall_s - node.last_seen_s
        if away_s > ABSENCE_S:
            node.returned_s = wall_s

    def _reports(self, node: Node, report: Report) -> None:
        earlier = node.reported.fingerprint
        known = node.reported.report != Report()
        node.reported.report = report
        if known and node.reported.fingerprint != earlier:
            self.lessons.forget(node)

    def disconnect(self, node: Node, session: Session, reason: str) -> None:
        """A session ended; a late end of one that was superseded changes nothing."""
        if node.session is not session:
            return
        before = node.state
        self._retire(node, reason)
        self._changed(node, before, reason)

    def _retire(self, node: Node, reason: str) -> None:
        session = node.session
        if session is None:
            return
        node.session = None
        node.left_at, node.left_because = monotonic(), reason
        self.tickets.pop(session.ticket, None)
        node.measured.rtt.lost()
        session.slots.close(reason)

    def held_elsewhere(
        self, node: Node, where: Elsewhere | None, reason: str, take_in: Callable[[], None] = lambda: None
    ) -> None:
        """Another coordinator of the cluster holds the node's link, or none does any more; `take_in` what it says of it."""
        before = node.state
        take_in()
        node.elsewhere = where
        if where is None:
            node.left_at, node.left_because = monotonic(), reason
        self._touched(node)
        self._turned(node)
        self._changed(node, before, reason)
        self.capacity()

    def runs_elsewhere(self, node: Node, where: Elsewhere, *, others: int, own: int) -> None:
        """The jobs on a link that another coordinator holds, or held: those that it told of, and ours."""
        before, slots = where.running, node.slots
        where.others, where.own = others, own
        if node.elsewhere is where:
            self._touched(node)
            if (before < slots) is not (where.running < slots):
                self._turned(node)
        if where.running < before:
            self.capacity()

    def offer(self, node: Node, offer: Offer, report: Report | None, refused: tuple[Refusal, ...]) -> None:
        """The node changed what it offers."""
        if report is not None:
            self._reports(node, report)
        node.reported.offer, node.reported.refused = offer, refused
        self._offered(node)

    def heartbeat(self, node: Node, beat: Heartbeat) -> None:
        """A heartbeat's claims replace the earlier ones."""
        before = node.state
        node.reported.telemetry = beat.telemetry
        node.reported.engines = beat.engines
        node.reported.draining = beat.draining
        for watcher in self.on_heartbeat:
            watcher(node)
        self._changed(node, before, "said so in its heartbeat")

    def silent(self, now: float, lag: LoopLag) -> list[tuple[Node, Session]]:
        """Nodes not heard for three heartbeats, with their sessions; `lag` tells what to give back for our own stalls."""
        return [
            (node, session)
            for node in self.nodes.values()
            if (session := node.session) is not None
            and is_silent(session.last_heard, now, self.heartbeat_s, 0.0)  # what is given back is reckoned for few
            and is_silent(session.last_heard, now, self.heartbeat_s, lag.stalled_s(session.last_heard, now))
        ]

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def reserve(self, node: Node) -> bool:
        """Count a job on the node, before anything is awaited, so that two requests cannot take one slot.

        Returns:
            Whether a slot was free. If so, exactly one call of `release` follows.
        """
        load, slots = node.load, node.slots
        jobs = load.jobs + 1
        if jobs > slots:
            return False
        load.change(jobs, monotonic())
        self._touched(node)
        if jobs == slots:
            self._turned(node)
        if jobs == 1:
            self._works(node, "ONLINE", "took a job")
        return True

    def release(self, node: Node, *, begun: bool = False) -> None:
        """A job on the node is over, however it ended. Exactly one call for each `reserve`; `begun` as `begins` was told."""
        load = node.load
        if begun:
            load.going_on -= 1
        jobs = load.jobs - 1
        assert jobs >= 0, "released more jobs than were reserved"
        load.change(jobs, monotonic())
        self._touched(node)
        if jobs == node.slots - 1:
            self._turned(node)
        if jobs == 0:
            self._works(node, "BUSY", "finished its jobs")
        self.capacity()

    def _works(self, node: Node, before: State, reason: str) -> None:
        """The first of its jobs came, or the last one went: of all that makes its state, only that is another now."""
        if node.elsewhere is None and (after := node.state) in _WORKING:
            self._tell(StateChange(node.node_id, before, after, reason))

    def queued(self, node_id: str, step: int) -> None:
        """One request more waits for this node and no other, or one less does."""
        node = self.nodes.get(node_id)
        if node is not None:
            node.waiting += step

    def begins(self, node: Node) -> None:
        """A job on the node has begun to answer."""
        load = node.load
        load.going_on = going_on = load.going_on + 1
        if going_on >= node.borne.limit and node.borne.began(going_on, node.reported.offer.slots):
            self.resized(node)

    def resized(self, node: Node) -> None:
        """The node was seen to bear more slots than it had, or fewer."""
        borne, claimed = node.borne, node.reported.offer.slots
        if borne.limit < node.slots_limit:
            log.warning("slots cut to what the node bears", node=node.node_id, slots=borne.limit, claimed=claimed)
        else:
            log.info("more slots", node=node.node_id, slots=borne.limit, claimed=claimed)
        node.slots_limit = borne.limit
        self._turned(node)
        self.capacity()
        if node.borne.collapsed:
            for hook in self.on_slots:
                hook(node)

    def empty(self, node: Node) -> None:
        """A job ended well and brought nothing: it counts for nothing, but too many ask for a canary."""
        node.load.ended += 1
        if node.health.empty():
            if node.health.empty_in_row == EMPTY:
                log.warning("empty answers", node=node.node_id, in_row=EMPTY)
            for hook in self.on_doubt:
                hook(node)

    def record(self, node: Node, kind: Kind, result: str, model: str, detail: str | None = None) -> None:
        """Something counts for or against a node: its fitness follows, and whoever keeps scores is told."""
        outcome = Outcome(node.node_id, kind, result, time.time(), model, detail)
        if node.elsewhere is not None and self.forward is not None:
            self.forward(node, outcome)
            return
        health, passed, now = node.health, result == "completed", monotonic()
        if kind == "customer":
            node.load.ended += 1
            turned = health.job(result, now)
        elif result in ("matched", "mismatched"):
            turned = health.comparison(agreed=result == "matched", now=now)
        elif kind == "canary":
            turned = health.canary(passed=passed, now=now)
        elif kind != "benchmark":
            turned = health.job(result, now)
        elif passed or model in node.measured.benchmarks:
            turned = health.benchmark(passed=passed, cause=detail or result, now=now)
        else:
            turned = False  # it gets no work with this model anyway, until it has been measured
        for hook in self.on_event:
            hook(node, outcome)
        if turned:
            self._fitness(node)

    def stand_in(self, node: Node, *, passed: bool) -> None:
        """A canary took the place of a comparison that no peer is left for."""
        if node.health.stand_in(passed=passed, now=monotonic()):
            self._fitness(node)

    def _fitness(self, node: Node) -> None:
        before = node.state_if(degraded=node.health.degraded is None)  # as it was until now
        reason = node.degraded or "it answered its canaries"
        log.warning("node degraded" if node.degraded else "node fit again", node=node.node_id, reason=reason)
        self._changed(node, before, reason)
        self.capacity()

    # --- measurements -------------------------------------------------------------------------------------------------

    def benchmarked(self, node: Node, benchmark: Benchmark, tokens: int = 0, text_bytes: int = 0) -> None:
        """A benchmark was taken, or remembered; `tokens` as reported for `text_bytes` of prose."""
        self.lessons.benchmarked(node, benchmark, tokens, text_bytes)
        self._turned(node)
        self.capacity()

    def _vouch(self, node: Node) -> None:
        """Whether it is trusted may have changed."""
        trusted = self.lessons.trusted
        (trusted.add if node.trusted or node.operator else trusted.discard)(node.node_id)

    # --- what follows -------------------------------------------------------------------------------------------------

    def decided(self, operator: bool, ask: Ask, selected: str | None) -> None:
        """A request was routed among one class of nodes; costs the same for any number of them."""
        counted = self.books[operator].request(ask)
        node = None if selected is None else self.nodes.get(selected)
        if node is not None:
            node.tally.taken[counted] += 1

    def skip_counts(self, node: Node, now: float) -> dict[str, int]:
        """Why requests passed a node by within the last hour, most frequent first."""
        self.books[node.operator].charge(node.tally, now)
        return node.tally.counts(now)

    def _reason(self, node: Node) -> Callable[[Ask], str | None]:
        state, needs = node_state(node), self.needs
        return lambda ask: unfit_for(state, ask, needs)

    def _turned(self, node: Node) -> None:
        self.books[node.operator].turn(node.tally, monotonic(), self._reason(node))

    def set_state(self, node: Node, reason: str, **fields: object) -> None:
        """Change `operator_drain`, `banned` or `trusted`, and tell of the state that follows."""
        before = node.state
        for name, value in fields.items():
            setattr(node, name, value)
        self._vouch(node)
        self._changed(node, before, reason)
        self.capacity()

    def _offered(self, node: Node) -> None:
        self._turned(node)
        for hook in self.on_offer:
            hook(node)
        self.capacity()

    def capacity(self) -> None:
        """Tell whoever waits that capacity may have come."""
        for hook in self.on_capacity:
            hook()

    def _changed(self, node: Node, before: str, reason: str) -> None:
        after = node.state
        if after != before:
            if before not in _WORKING or after not in _WORKING:
                self._turned(node)
            change = StateChange(node.node_id, before, after, reason)
            self._tell(change)
            if after == "OFFLINE":
                for hook in self.on_gone:
                    hook(change)

    def _tell(self, change: StateChange) -> None:
        for hook in self.on_change:
            hook(change)
