"""A live node as the node router sees it at one moment."""

from collections.abc import Mapping
from operator import is_not

from brain_coord.fleet.node import Node
from brain_coord.fleet.skips import Ask
from brain_coord.routing.inputs import AUTO_MODEL, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.rejections import rejection_bits, rejection_words
from brain_coord.routing.vocabulary import Basis, Liveness


def node_state(node: Node) -> NodeState:
    """Claims can only exclude here (VRAM, what is offered); what ranks is measured or set by operators.

    A model counts as loaded when the node says so *and* it has answered with it on our clock: the word alone is worth nothing.
    """
    offer, measured = node.reported.offer, node.measured
    return NodeState(
        node_id=node.node_id,
        state=Liveness(node.state),
        slots=node.slots,
        active=node.running,
        queue=node.waiting,
        serves=frozenset(node.models),
        loaded=frozenset(model for model in node.loaded if model in measured.credited),
        reported_vram_mib=node.reported.report.vram_mib,
        tok_s=dict(measured.credited),
        benchmark_tok_s=measured.best_tok_s,
        basis=Basis(measured.basis),
        rtt_ms=measured.rtt.rtt_ms,
        reliability=node.reliability,
        region=offer.region,
        ask_usd_per_1m=offer.ask_usd_per_1m,
    )


class SeenStates:
    """The states that one node was in since anything but its jobs changed: it takes a job and ends it, and is where it was."""

    __slots__ = ("_by_jobs", "_changes", "_rest", "_said", "operator")

    def __init__(self, *, operator: bool) -> None:
        self.operator = operator
        """Whether it was one of the operator's own."""
        self._changes = -1
        self._rest: tuple[object, ...] = ()
        self._said: tuple[object, ...] = ()
        self._by_jobs: dict[int, NodeState] = {}

    def of(self, node: Node) -> NodeState:
        """As `node_state`; the same object where it is an equal one."""
        if node.changes != self._changes:
            self._changes = node.changes
            self._look_again(node)
        running = node.running
        state = self._by_jobs.get(running)
        if state is None:
            state = self._by_jobs[running] = node_state(node)
        return state

    def _look_again(self, node: Node) -> None:
        """Forget the states if something else about the node is another now. What it says is told apart by identity."""
        reported, measured, state = node.reported, node.measured, node.state
        said = reported.offer, reported.report, reported.refused
        rest = (
            node.slots,
            "ONLINE" if state == "BUSY" else state,  # which of the two, its jobs say
            node.waiting,
            node.reliability,
            measured.rtt.rtt_ms,
            measured.best_tok_s,
            measured.basis,
            *measured.credited.items(),
        )
        if rest != self._rest or any(map(is_not, said, self._said)) or not self._said:
            self._rest, self._said = rest, said
            self._by_jobs.clear()


def unfit_for(state: NodeState, ask: Ask, needs: Mapping[str, ModelNeed]) -> str | None:
    """Why a node as it was at one moment cannot take a request, in the words of a rejection; `None` when it can."""
    request = NodeRequest(
        region=ask.region, require_region=ask.region is not None, max_ask_usd_per_1m=ask.max_ask_usd_per_1m
    )
    models = [ask.model]
    if ask.model == AUTO_MODEL:
        models = [model for model in needs if model in state.serves and not needs[model].mock]
    reasons = [_words(state, request, needs[model]) for model in models if model in needs]
    if not reasons:
        return f"does not serve {ask.model}" if ask.model != AUTO_MODEL else "serves no real model"
    return None if "" in reasons else reasons[0]


def _words(state: NodeState, request: NodeRequest, need: ModelNeed) -> str:
    bits = rejection_bits(state, request, need)
    return ", ".join(rejection_words(bits, state, request, need)) if bits else ""
