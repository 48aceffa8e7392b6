"""Both routers once more, written from the published rules alone: slow, in exact fractions, and with nothing of the product in it
but the records that it is given."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import isfinite
from statistics import median
from typing import Any

from brain_coord.routing.inputs import ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState

ALLOWED = {
    "PUBLIC": {"untrusted-distributed", "operator", "third-party"},
    "STANDARD": {"operator", "third-party"},
    "PRIVATE": {"operator"},
}
TRUST = {
    "BROWSER_NETWORK": "untrusted-distributed",
    "NATIVE_NETWORK": "untrusted-distributed",
    "CLOUD_GPU": "operator",
    "EXTERNAL_MODEL": "third-party",
}
WEIGHTS = {  # cost, latency, reliability, quality, and what UNKNOWN counts
    "AUTO": ("0.40", "0.25", "0.25", "0.10", "0.75"),
    "CHEAP": ("0.80", "0.05", "0.15", "0", "1"),
    "FAST": ("0.05", "0.80", "0.15", "0", "1"),
    "QUALITY": ("0.05", "0.05", "0.30", "0.60", "1"),
}


def known(value: float | None) -> Fraction | None:
    """A figure that can be a measurement, exactly; `None` is UNKNOWN."""
    return Fraction(value) if value is not None and isfinite(value) and value >= 0 else None


def all_known(items: Iterable[Any], figure: Callable[[Any], float | None]) -> list[Fraction]:
    return [value for item in items if (value := known(figure(item))) is not None]


def clamp(value: Fraction) -> Fraction:
    return max(Fraction(0), min(Fraction(1), value))


# --- which machine -----------------------------------------------------------------------------------------------------


def rejections(node: NodeState, request: NodeRequest, need: ModelNeed) -> list[str]:
    """What keeps a node away, in the published order; the sizes in a lack of memory are left out."""
    found = []
    if node.state in ("OFFLINE", "DRAINING", "DEGRADED"):
        found.append(node.state.lower())
    elif node.active >= node.slots:
        found.append("no free slot")
    if need.model_id not in node.serves:
        found.append(f"does not serve {need.model_id}")
    if node.basis == "unmeasured":
        found.append("not yet benchmarked")
    if node.reported_vram_mib is not None and node.reported_vram_mib < need.min_vram_mib:
        found.append("VRAM")
    if request.require_region and request.region is not None and node.region != request.region:
        found.append(f"not in {request.region}")
    ask, budget = known(node.ask_usd_per_1m), known(request.max_ask_usd_per_1m)
    if ask is not None and budget is not None and ask > budget:
        found.append("ask above budget")
    return found


def speed(node: NodeState, need: ModelNeed) -> float | None:
    measured = node.tok_s.get(need.model_id)
    return node.benchmark_tok_s if known(measured) is None else measured


def node_scores(
    request: NodeRequest, need: ModelNeed, nodes: Sequence[NodeState]
) -> dict[str, tuple[Fraction, dict[str, Fraction]]]:
    """NodeScore and its terms of each eligible node, by id."""
    candidates = [node for node in nodes if request.node in (None, node.node_id)]
    eligible = [node for node in candidates if not rejections(node, request, need)]
    fastest = max(all_known(eligible, lambda node: speed(node, need)), default=Fraction(0))
    rtts = all_known(eligible, lambda node: node.rtt_ms)
    dearest = max(all_known(eligible, lambda node: node.ask_usd_per_1m), default=Fraction(0))
    scores = {}
    for node in eligible:
        own, rtt, ask = known(speed(node, need)), known(node.rtt_ms), known(node.ask_usd_per_1m)
        half = Fraction("0.5")
        ratio = half if own is None else own / fastest if fastest else Fraction(0)
        loaded = Fraction(1) if need.model_id in node.loaded else Fraction("0.6")
        latency = half
        if rtt is not None:
            latency = Fraction("0.7") * clamp(1 - rtt / 300) + (Fraction("0.3") if rtt <= median(rtts) else 0)
        if request.region is not None and node.region == request.region:
            latency += Fraction("0.2")
        price = half
        if ask is not None:
            price = Fraction("0.2") + Fraction("0.8") * (1 - ask / dearest) if dearest else Fraction(1)
        terms = {
            "capability": loaded * (half + half * ratio),
            "availability": clamp(1 - Fraction(node.active, node.slots))
            * clamp(1 - Fraction(node.queue, 4 * node.slots)),
            "latency": min(Fraction(1), latency),
            "reputation": clamp(Fraction(node.reliability) / 100),
            "price": price,
        }
        shares = ("0.30", "0.25", "0.15", "0.20", "0.10")
        total = sum((Fraction(share) * term for share, term in zip(shares, terms.values(), strict=True)), Fraction(0))
        scores[node.node_id] = (total, terms)
    return scores


# --- which kind of hardware --------------------------------------------------------------------------------------------


def class_mode(request: ClassRequest, policy: str) -> str:
    """The mode that holds."""
    covered = policy == "all" or (policy == "free" and request.plan == "free")
    becomes = request.mode == "AUTO" and class_privacy(request) == "PUBLIC" and covered
    return "COMMUNITY" if becomes else str(request.mode)


def class_privacy(request: ClassRequest) -> str:
    return str(request.privacy or ("PUBLIC" if request.names_node_model else "STANDARD"))


def exclusions(state: ClassState, request: ClassRequest, policy: str) -> list[str]:
    """Why a class cannot take a request, in the published order."""
    name, mode = str(state.resource_class), class_mode(request, policy)
    cost, most = known(state.cost_usd), known(request.max_cost_usd)
    latency, longest = known(state.latency_ms), known(request.max_latency_ms)
    return [
        code
        for code, holds in (
            ("unsupported", not state.supported),
            ("unavailable", not state.available),
            ("browser_only", mode == "BROWSER_ONLY" and name != "BROWSER_NETWORK"),
            ("privacy", request.carries_plaintext and TRUST[name] not in ALLOWED[class_privacy(request)]),
            ("over_max_cost", cost is not None and most is not None and cost > most),
            ("over_max_latency", latency is not None and longest is not None and latency > longest),
        )
        if holds
    ]


def class_scores(request: ClassRequest, classes: Sequence[ClassState], policy: str) -> dict[str, Fraction]:
    """The score of each eligible class, by name; lower is better."""
    eligible = [state for state in classes if not exclusions(state, request, policy)]
    mode = class_mode(request, policy)
    *shares, unknown = map(Fraction, WEIGHTS.get(mode, WEIGHTS["AUTO"]))

    def between(figure: Callable[[ClassState], float | None], state: ClassState) -> Fraction:
        value, others = known(figure(state)), all_known(eligible, figure)
        if value is None:
            return unknown
        return (value - min(others)) / (max(others) - min(others)) if max(others) > min(others) else Fraction(0)

    def missing(share: float | None) -> Fraction:
        value = known(share)
        return unknown if value is None else 1 - min(Fraction(1), value)

    scores = {}
    for state in eligible:
        penalties = (
            between(lambda each: each.cost_usd, state),
            between(lambda each: each.latency_ms, state),
            missing(state.reliability),
            missing(state.quality),
        )
        weighted = (share * penalty for share, penalty in zip(shares, penalties, strict=True))
        scores[str(state.resource_class)] = sum(weighted, Fraction(0))
    return scores
