"""The live registry: every node the coordinator knows, its session, and who waits for capacity."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from brain_coord.fleet.liveness import is_silent
from brain_coord.fleet.node import Node, Session
from brain_coord.measure.lag import LoopLag
from brain_node.contract.messages import Heartbeat, Offer, Refusal, Report


@dataclass(frozen=True, slots=True)
class StateChange:
    """A node's state became another; `reason` is one line for people."""

    node_id: str
    before: str
    after: str
    reason: str


@dataclass(slots=True)
class Registry:
    """Owned by the event loop's thread: nothing in it awaits, so each change is atomic.

    `on_change` hears of every state change, `on_capacity` of every moment at which a waiting request might go on
    (a slot came free, a node joined, an offer changed).
    """

    heartbeat_s: float
    nodes: dict[str, Node] = field(default_factory=dict)
    tickets: dict[str, Node] = field(default_factory=dict)
    on_change: list[Callable[[StateChange], None]] = field(default_factory=list)
    on_capacity: list[Callable[[], None]] = field(default_factory=list)
    on_offer: list[Callable[[Node], None]] = field(default_factory=list)
    on_outcome: list[Callable[[Node, str, str], None]] = field(default_factory=list)
    on_heartbeat: list[Callable[[Node], None]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Node]:
        """Every node, by ascending id."""
        return iter(sorted(self.nodes.values(), key=lambda node: node.node_id))

    def get(self, node_id: str) -> Node | None:
        """The node with this id."""
        return self.nodes.get(node_id)

    def add(self, node: Node) -> Node:
        """Make a node known."""
        return self.nodes.setdefault(node.node_id, node)

    def by_ticket(self, ticket: str) -> Node | None:
        """The node whose open session has this slot ticket."""
        return self.tickets.get(ticket)

    def connect(self, node: Node, session: Session, report: Report, offer: Offer, refused: tuple[Refusal, ...]) -> None:
        """A hello was accepted. An older session of the same node is superseded and closed by the caller."""
        before = node.state
        if node.session is not None:
            self._retire(node, "superseded by a newer session")
        node.session = session
        node.reported.report, node.reported.offer, node.reported.refused = report, offer, refused
        node.reported.draining = False
        self.tickets[session.ticket] = node
        self._changed(node, before, "joined")
        self._offered(node)

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
        self.tickets.pop(session.ticket, None)
        node.measured.rtt.lost()
        session.slots.close(reason)

    def offer(self, node: Node, offer: Offer, report: Report | None, refused: tuple[Refusal, ...]) -> None:
        """The node changed what it offers."""
        node.reported.offer, node.reported.refused = offer, refused
        if report is not None:
            node.reported.report = report
        self._offered(node)

    def heartbeat(self, node: Node, beat: Heartbeat) -> None:
        """A heartbeat's claims replace the earlier ones."""
        before = node.state
        node.reported.telemetry = beat.telemetry
        node.reported.engines = beat.engines
        node.reported.draining = beat.draining
        for hook in self.on_heartbeat:
            hook(node)
        self._changed(node, before, "said so in its heartbeat")

    def silent(self, now: float, lag: LoopLag) -> list[tuple[Node, Session]]:
        """Nodes not heard for three heartbeats, with their sessions; `lag` tells what to give back for our own stalls."""
        return [
            (node, session)
            for node in self.nodes.values()
            if (session := node.session) is not None
            and is_silent(session.last_heard, now, self.heartbeat_s, lag.stalled_s(session.last_heard, now))
        ]

    def reserve(self, node: Node) -> None:
        """Count a job on the node, before anything is awaited, so that two requests cannot take one slot."""
        before = node.state
        node.active += 1
        self._changed(node, before, "took a job")

    def release(self, node: Node) -> None:
        """A job on the node is over, however it ended. Exactly one call for each `reserve`."""
        assert node.active > 0, "released more jobs than were reserved"
        before = node.state
        node.active -= 1
        self._changed(node, before, "finished its jobs")
        self.capacity()

    def outcome(self, node: Node, result: str, model: str) -> None:
        """A customer's job on the node counts as `completed`, `failed` or `timed_out`."""
        for hook in self.on_outcome:
            hook(node, result, model)

    def set_state(self, node: Node, reason: str, **fields: object) -> None:
        """Change `degraded`, `operator_drain`, `banned` or `trusted`, and tell of the state that follows."""
        before = node.state
        for name, value in fields.items():
            setattr(node, name, value)
        self._changed(node, before, reason)
        self.capacity()

    def _offered(self, node: Node) -> None:
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
            change = StateChange(node.node_id, before, after, reason)
            for hook in self.on_change:
                hook(change)
