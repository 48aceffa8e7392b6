"""A live node as the node router sees it at one moment."""

from brain_coord.fleet.node import Node
from brain_coord.routing.inputs import NodeState
from brain_coord.routing.vocabulary import Basis, Liveness


def node_state(node: Node) -> NodeState:
    """Claims can only exclude here (VRAM, what is offered, slots); what ranks is measured or set by operators."""
    offer, measured = node.reported.offer, node.measured
    return NodeState(
        node_id=node.node_id,
        state=Liveness(node.state),
        slots=offer.slots,
        active=node.active,
        queue=node.waiting,
        serves=frozenset(node.models),
        loaded=frozenset(node.loaded),
        reported_vram_mib=node.reported.report.vram_mib,
        tok_s={
            **{model: benchmark.decode_tok_s for model, benchmark in measured.benchmarks.items()},
            **{model: window.value for model, window in measured.decode_tok_s.items()},
        },
        benchmark_tok_s=None if measured.best is None else measured.best.decode_tok_s,
        basis=Basis(measured.basis),
        rtt_ms=measured.rtt.rtt_ms,
        reliability=node.reliability,
        region=offer.region,
        ask_usd_per_1m=offer.ask_usd_per_1m,
    )
