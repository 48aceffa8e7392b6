"""Which machine: filters and scores the nodes that could take a request. Pure, and independent of their order."""

from collections.abc import Iterable, Sequence

from brain_coord.routing import weights
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.node_decision import (
    MODEL_NOT_LOADED,
    NO_ASK_SET,
    RTT_UNMEASURED,
    SPEED_UNMEASURED,
    NodeDecision,
    NodeScore,
    Pool,
    Rejected,
)
from brain_coord.routing.rejections import rejection_bits


def decide_node(request: NodeRequest, model: ModelNeed, nodes: Iterable[NodeState]) -> NodeDecision:
    """Choose the node for a request.

    The rules stand in ROUTING.md. Ids must be unique. The same nodes in any order give the same decision.
    """
    eligible: list[NodeState] = []
    rejected: list[Rejected] = []
    pinned = request.node
    for node in nodes:
        if pinned is not None and node.node_id != pinned:
            continue
        bits = rejection_bits(node, request, model)
        if bits:
            rejected.append(Rejected(node, bits))
        else:
            eligible.append(node)
    pool = pool_of(eligible, model)
    ranked = sorted((score_node(node, request, model, pool) for node in eligible), key=rank)
    rejected.sort(key=_node_id)
    return NodeDecision(request, model, pool, tuple(ranked), tuple(rejected))


def rank(score: NodeScore) -> tuple[float, str]:
    """The order of eligible nodes: by the total as it is published, then by id."""
    return -score.total, score.node.node_id


def speed_of(node: NodeState, model: ModelNeed) -> float | None:
    """Decode speed in tokens per second: measured on this model, else the join benchmark, else unknown."""
    measured = node.tok_s.get(model.model_id)
    if is_known(measured):
        return measured
    return node.benchmark_tok_s if is_known(node.benchmark_tok_s) else None


def pool_of(eligible: Sequence[NodeState], model: ModelNeed) -> Pool:
    """What the eligible nodes are compared against."""
    speeds = [speed for node in eligible if (speed := speed_of(node, model)) is not None]
    rtts = sorted(node.rtt_ms for node in eligible if is_known(node.rtt_ms))
    asks = [node.ask_usd_per_1m for node in eligible if is_known(node.ask_usd_per_1m)]
    return Pool(max(speeds, default=None), _median(rtts), max(asks, default=None))


def score_node(node: NodeState, request: NodeRequest, model: ModelNeed, pool: Pool) -> NodeScore:
    """The five terms of one eligible node and their weighted sum, rounded after the sum."""
    notes = 0

    capability = weights.LOADED_FACTOR
    if model.model_id not in node.loaded:
        capability = weights.NOT_LOADED_FACTOR
        notes = MODEL_NOT_LOADED
    speed = speed_of(node, model)
    if speed is None:
        speed_ratio = weights.UNMEASURED_SPEED_RATIO
        notes |= SPEED_UNMEASURED
    else:
        speed_ratio = speed / pool.max_tok_s if pool.max_tok_s else 0.0
    capability *= weights.SPEED_FLOOR + (1 - weights.SPEED_FLOOR) * speed_ratio

    free_share = _unit(1 - node.active / node.slots)
    availability = free_share * _unit(1 - node.queue / (weights.QUEUE_DEPTH_PER_SLOT * node.slots))

    rtt_ms = node.rtt_ms
    if not is_known(rtt_ms):
        latency = weights.UNMEASURED_LATENCY
        notes |= RTT_UNMEASURED
    else:
        latency = weights.RTT_SHARE * _unit(1 - rtt_ms / weights.RTT_CEILING_MS)
        if pool.median_rtt_ms is not None and rtt_ms <= pool.median_rtt_ms:
            latency += weights.MEDIAN_BONUS
    if request.region is not None and node.region == request.region:
        latency += weights.REGION_BONUS
    latency = min(1.0, latency)

    reputation = _unit(node.reliability / 100)

    ask = node.ask_usd_per_1m
    if not is_known(ask):
        price = weights.UNSET_PRICE
        notes |= NO_ASK_SET
    elif pool.highest_ask_usd_per_1m:
        price = weights.PRICE_FLOOR + (1 - weights.PRICE_FLOOR) * (1 - ask / pool.highest_ask_usd_per_1m)
    else:
        price = 1.0

    total = (
        weights.CAPABILITY_WEIGHT * capability
        + weights.AVAILABILITY_WEIGHT * availability
        + weights.LATENCY_WEIGHT * latency
        + weights.REPUTATION_WEIGHT * reputation
        + weights.PRICE_WEIGHT * price
    )
    places = weights.SCORE_DECIMALS
    return NodeScore(
        node,
        round(total, places),
        round(capability, places),
        round(availability, places),
        round(latency, places),
        round(reputation, places),
        round(price, places),
        notes,
    )


def _node_id(rejected: Rejected) -> str:
    return rejected.node.node_id


def _median(ordered: Sequence[float]) -> float | None:
    if not ordered:
        return None
    upper = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[upper]
    # Halved before the sum: two huge finite values must not add up to infinity. Half of the least there is would be 0.
    return max(ordered[upper - 1], ordered[upper - 1] / 2 + ordered[upper] / 2)


def _unit(value: float) -> float:
    """Clamped to 0..1; NaN gives 0."""
    if 0.0 <= value <= 1.0:
        return value
    return 1.0 if value > 1.0 else 0.0
