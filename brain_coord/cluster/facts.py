"""What one coordinator tells the others of a node that is linked to it, and how they take it in."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic
from typing import Any

from brain_coord.fleet.health import Degradation
from brain_coord.fleet.node import Node
from brain_coord.measure.rtt import RttEstimator
from brain_coord.measure.slots import BorneSlots
from brain_coord.measure.window import MedianWindow
from brain_coord.store.records import Benchmark
from brain_node.contract.messages import EngineClaim, Offer, Refusal, Report


def facts_of(node: Node) -> dict[str, Any]:
    """A node's claims and measurements as JSON values; its load travels by itself."""
    reported, measured, degraded = node.reported, node.measured, node.health.degraded
    return {
        "key": base64.b64encode(node.public_key).decode(),
        "operator": node.operator,
        "trusted": node.trusted,
        "banned": node.banned,
        "drained": node.operator_drain,
        "first_seen_s": node.first_seen,
        "reliability": node.reliability,
        "outcomes": node.done,
        "degraded": None if degraded is None else [degraded.cause, degraded.reason],
        "agent_version": reported.agent_version,
        "draining": reported.draining,
        "offer": reported.offer.model_dump(),
        "slots_limit": node.slots_limit,
        "collapsed": node.borne.collapsed,
        "report": reported.report.model_dump(),
        "refused": [each.model_dump() for each in reported.refused],
        "engines": [each.model_dump() for each in reported.engines],
        "rtt_ms": measured.rtt.values_ms,
        "credited": dict(measured.credited),
        "best_tok_s": measured.best_tok_s,
        "factor": dict(measured.density_factor),
        "decode_tok_s": {model: window.values for model, window in measured.decode_tok_s.items()},
        "first_output_ms": {model: window.values for model, window in measured.first_output_ms.items()},
        "benchmarks": [asdict(each) for each in measured.benchmarks.values()],
    }


def new_node(node_id: str, facts: Mapping[str, Any]) -> Node:
    """A node that joined at another coordinator first."""
    return Node(
        node_id,
        base64.b64decode(facts["key"]),
        operator=facts["operator"],
        banned=facts["banned"],
        trusted=facts["trusted"],
        operator_drain=facts["drained"],
        first_seen=facts["first_seen_s"],
    )


def take_in(node: Node, facts: Mapping[str, Any]) -> None:
    """Make a node here what its coordinator says of it; what operators decided is read from the store instead.

    Must not be called while its link is here.
    """
    reported, measured, now = node.reported, node.measured, monotonic()
    node.reliability, node.done = facts["reliability"], facts["outcomes"]
    degraded, known = facts["degraded"], node.health.degraded
    if degraded is None:
        node.health.degraded = None
    elif known is None or known.reason != degraded[1]:
        node.health.degraded = Degradation(degraded[0], degraded[1], now)
    reported.agent_version, reported.draining = facts["agent_version"], facts["draining"]
    reported.offer, reported.report = Offer.model_validate(facts["offer"]), Report.model_validate(facts["report"])
    node.slots_limit = facts["slots_limit"]
    node.borne = BorneSlots(node.slots_limit, collapsed=facts["collapsed"])
    reported.refused = tuple(map(Refusal.model_validate, facts["refused"]))
    reported.engines = tuple(map(EngineClaim.model_validate, facts["engines"]))
    measured.rtt = RttEstimator.of(facts["rtt_ms"])
    measured.credited, measured.density_factor = facts["credited"], facts["factor"]
    measured.best_tok_s = facts["best_tok_s"]
    measured.decode_tok_s = {model: MedianWindow.of(values, now) for model, values in facts["decode_tok_s"].items()}
    measured.first_output_ms = {
        model: MedianWindow.of(values, now) for model, values in facts["first_output_ms"].items()
    }
    measured.benchmarks = {each["model"]: Benchmark(**each) for each in facts["benchmarks"]}
