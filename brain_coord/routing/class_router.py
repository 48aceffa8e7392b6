"""Which kind of hardware: filters, scores and orders the resource classes. Pure, and independent of their order."""

from collections.abc import Iterable, Sequence

from brain_coord.routing.class_decision import ClassDecision, ClassRow, Penalties, rank
from brain_coord.routing.inputs import ClassRequest, ClassState, is_known, is_over
from brain_coord.routing.modes import resolve_mode
from brain_coord.routing.privacy import may_see, privacy_of
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Mode, Privacy, ResourceClass
from brain_coord.routing.weights import CLASS_WEIGHTS, SCORE_DECIMALS, ClassWeights


def decide_class(
    request: ClassRequest, classes: Iterable[ClassState], community_first: CommunityFirst = CommunityFirst.FREE
) -> ClassDecision:
    """Order the classes for a request.

    The rules stand in ROUTING.md. Each class may stand there once. The same classes in any order give the same decision.

    Args:
        request: what the client asks.
        classes: every configured class as it is now.
        community_first: the operator's `BRAIN_COMMUNITY_FIRST`.
    """
    mode, privacy = resolve_mode(request, community_first), privacy_of(request)
    rows = [ClassRow(state, _exclusions(state, request, mode, privacy)) for state in classes]
    scored = _score([row.state for row in rows if not row.exclusions], CLASS_WEIGHTS[mode])
    ordered = sorted(scored, key=rank) + sorted((row for row in rows if row.exclusions), key=rank)
    first = next((row for row in ordered if _is_community(row)), None) if mode is Mode.COMMUNITY else None
    if first is not None:
        ordered.remove(first)
        ordered.insert(0, first)
    return ClassDecision(request, community_first, mode, tuple(ordered), first is not None)


def _exclusions(state: ClassState, request: ClassRequest, mode: Mode, privacy: Privacy) -> tuple[Exclusion, ...]:
    found = []
    if not state.supported:
        found.append(Exclusion.UNSUPPORTED)
    if not state.available:
        found.append(Exclusion.UNAVAILABLE)
    if mode is Mode.BROWSER_ONLY and state.resource_class is not ResourceClass.BROWSER_NETWORK:
        found.append(Exclusion.BROWSER_ONLY)
    if not may_see(state.resource_class, privacy, carries_plaintext=request.carries_plaintext):
        found.append(Exclusion.PRIVACY)
    if is_over(state.cost_usd, request.max_cost_usd):
        found.append(Exclusion.OVER_MAX_COST)
    if is_over(state.latency_ms, request.max_latency_ms):
        found.append(Exclusion.OVER_MAX_LATENCY)
    return tuple(found)


def _score(eligible: Sequence[ClassState], weights: ClassWeights) -> list[ClassRow]:
    costs = [state.cost_usd for state in eligible if is_known(state.cost_usd)]
    latencies = [state.latency_ms for state in eligible if is_known(state.latency_ms)]
    return [_row(state, weights, costs, latencies) for state in eligible]


def _row(state: ClassState, weights: ClassWeights, costs: Sequence[float], latencies: Sequence[float]) -> ClassRow:
    known = {
        "cost": _normalised(state.cost_usd, costs),
        "latency": _normalised(state.latency_ms, latencies),
        "reliability": _shortfall(state.reliability),
        "quality": _shortfall(state.quality),
    }
    cost, latency, reliability, quality = (
        weights.unknown_penalty if penalty is None else penalty for penalty in known.values()
    )
    total = (
        weights.cost * cost + weights.latency * latency + weights.reliability * reliability + weights.quality * quality
    )
    penalties = Penalties(
        round(cost, SCORE_DECIMALS),
        round(latency, SCORE_DECIMALS),
        round(reliability, SCORE_DECIMALS),
        round(quality, SCORE_DECIMALS),
        tuple(name for name, penalty in known.items() if penalty is None),
    )
    return ClassRow(state, (), round(total, SCORE_DECIMALS), penalties)


def _normalised(value: float | None, known: Sequence[float]) -> float | None:
    """Where a value stands between the least (0) and the greatest (1) known one; 0 where they are all the same."""
    if not is_known(value):
        return None
    least, greatest = min(known), max(known)
    return (value - least) / (greatest - least) if greatest > least else 0.0


def _shortfall(share: float | None) -> float | None:
    """How far a share is from 1."""
    return 1 - min(1.0, share) if is_known(share) else None


def _is_community(row: ClassRow) -> bool:
    return row.resource_class is ResourceClass.NATIVE_NETWORK and not row.exclusions and not row.state.mock
