"""What the routers are given: a request, and classes or nodes as the coordinator knows them at that moment.

`None` is unknown everywhere and is never filled in. A number that is not finite and not negative cannot be a
measurement; the routers treat it as unknown, so that one bad sample can neither win a rank nor stop a decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeGuard

from brain_coord.routing.vocabulary import Basis, Liveness, Mode, Plan, Privacy, ResourceClass
from brain_coord.routing.weights import UNTRIED_RELIABILITY

AUTO_MODEL: Final = "brain/auto"
"""The model id that lets the routers choose."""


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether a value can be reckoned with: a finite number of at least 0 (NaN fails both comparisons)."""
    return value is not None and 0.0 <= value < inf


def is_over(value: float | None, limit: float | None) -> bool:
    """Whether a known value is over a limit; an unknown one is not."""
    return is_known(value) and is_known(limit) and value > limit


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """A request as the class router sees it.

    Attributes:
        mode: as asked; the operator's COMMUNITY rule is applied by the router.
        privacy: as asked; `None` takes the default of `default_privacy`.
        plan: of the key that asks.
        max_cost_usd: the most that the request may cost; a class of unknown cost is not excluded by it.
        max_latency_ms: the most that it may take; likewise.
        carries_plaintext: whether a target could read the client's text; privacy bars nothing that carries none.
        names_node_model: whether the model asked for is one that Brain Nodes serve.
    """

    mode: Mode = Mode.AUTO
    privacy: Privacy | None = None
    plan: Plan = Plan.FREE
    max_cost_usd: float | None = None
    max_latency_ms: float | None = None
    carries_plaintext: bool = True
    names_node_model: bool = False


@dataclass(frozen=True, slots=True)
class ClassState:
    """One resource class: whether it can take this request, and what it measured of itself.

    Attributes:
        resource_class: which one.
        supported: it offers exactly the model named or, for `brain/auto`, any model with the capability.
        available: it could take a request now.
        cost_usd: estimate for this request; `None` when no price is configured.
        latency_ms: estimate from completed samples; `None` without any.
        reliability: share of good outcomes, 0 to 1; `None` without any.
        quality: the operator's quality tier, 0 to 1; `None` when not set.
        confidence: how many samples the estimates stand on.
        mock: it would answer with a mock model.
    """

    resource_class: ResourceClass
    supported: bool = True
    available: bool = True
    cost_usd: float | None = None
    latency_ms: float | None = None
    reliability: float | None = None
    quality: float | None = None
    confidence: int = 0
    mock: bool = False


@dataclass(frozen=True, slots=True)
class ModelNeed:
    """What a model of the catalog asks of a node.

    Attributes:
        model_id: exact id, as in the catalog.
        min_vram_mib: memory that must be reported, in MiB; 0 asks for none.
        mock: never chosen by `brain/auto`.
    """

    model_id: str
    min_vram_mib: int = 0
    mock: bool = False


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request as the node router sees it.

    Attributes:
        region: a match is worth a bonus; `None` when the client named none.
        require_region: only a match will do (without a region this asks for nothing).
        max_ask_usd_per_1m: budget in USD for a million tokens; a node without an ask is not excluded by it.
        node: the only candidate, by its full id.
    """

    region: str | None = None
    require_region: bool = False
    max_ask_usd_per_1m: float | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node at the moment of the decision.

    Attributes:
        node_id: `N-` and 16 hex digits.
        state: as the coordinator sees it.
        slots: jobs it may run at a time.
        active: jobs running, by the coordinator's own count.
        queue: jobs waiting for it, by the coordinator's own count.
        serves: model ids it offers.
        loaded: those whose engine is ready.
        reported_vram_mib: a claim, so it can only exclude; `None` when it reports none.
        tok_s: coordinator-measured decode speed by model id.
        benchmark_tok_s: the coordinator-timed join benchmark.
        basis: `UNMEASURED` until the coordinator timed a first token.
        rtt_ms: median round trip on the coordinator's clock.
        reliability: Brain Reliability Score, 0 to 100; a node without outcomes has 70.
        region: as its operator set it.
        ask_usd_per_1m: as its operator set it, in USD for a million tokens.
    """

    node_id: str
    state: Liveness
    slots: int
    active: int = 0
    queue: int = 0
    serves: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    reported_vram_mib: int | None = None
    tok_s: Mapping[str, float | None] = field(default_factory=dict)
    benchmark_tok_s: float | None = None
    basis: Basis = Basis.UNMEASURED
    rtt_ms: float | None = None
    reliability: float = UNTRIED_RELIABILITY
    region: str | None = None
    ask_usd_per_1m: float | None = None
