"""Nodes and classes for routing tests: by hand, and at random."""

from hypothesis import strategies as st

from brain_coord.routing.inputs import ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.vocabulary import Basis, CommunityFirst, Liveness, Mode, Plan, Privacy, ResourceClass

MODEL = "qwen/qwen2.5-7b-instruct"
OTHER = "mistralai/mistral-7b-instruct-v0.3"
NEED = ModelNeed(MODEL, 6000)


def a_node(name: str = "A", **changes) -> NodeState:
    """A node that serves MODEL, idle and measured; `name` is the start of its id."""
    node_id = name if name.startswith("N-") else f"N-{name:0<16}"
    members = {
        "state": Liveness.ONLINE,
        "slots": 4,
        "serves": frozenset({MODEL}),
        "loaded": frozenset({MODEL}),
        "reported_vram_mib": 24564,
        "tok_s": {MODEL: 100.0},
        "basis": Basis.COORDINATOR_TIMED,
        "rtt_ms": 30.0,
    }
    return NodeState(node_id=node_id, **(members | changes))


def a_class(resource_class: ResourceClass, **changes) -> ClassState:
    members = {"cost_usd": 0.001, "latency_ms": 800.0, "reliability": 0.9, "quality": 0.5, "confidence": 20}
    return ClassState(resource_class, **(members | changes))


# Few distinct values, so that equal ones and ties are common.
REGIONS = st.sampled_from([None, "eu-north", "us-east"])
MODELS = st.frozensets(st.sampled_from([MODEL, OTHER, "brain/mock"]))
MEASUREMENTS = st.none() | st.sampled_from([0.0, 30.0, 1e308, 5e-324]) | st.floats(0, 500)
# What a faulty part of the coordinator might still hand over.
BROKEN = st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0])
NODE_IDS = st.text("0123456789ABCDEF", min_size=16, max_size=16).map("N-".__add__)


def node_states(measurements: st.SearchStrategy = MEASUREMENTS) -> st.SearchStrategy[NodeState]:
    return st.builds(
        NodeState,
        node_id=NODE_IDS,
        state=st.sampled_from([Liveness.ONLINE, Liveness.BUSY, *Liveness]),
        slots=st.integers(0, 4),
        active=st.integers(0, 4),
        queue=st.integers(0, 40),
        serves=MODELS,
        loaded=MODELS,
        reported_vram_mib=st.none() | st.sampled_from([8188, 22919, 24564]),
        tok_s=st.dictionaries(st.sampled_from([MODEL, OTHER]), measurements),
        benchmark_tok_s=measurements,
        basis=st.sampled_from([Basis.COORDINATOR_TIMED, Basis.COORDINATOR_TIMED, Basis.UNMEASURED]),
        rtt_ms=measurements,
        reliability=st.integers(0, 100),
        region=REGIONS,
        ask_usd_per_1m=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    )


def registries(measurements: st.SearchStrategy = MEASUREMENTS) -> st.SearchStrategy[list[NodeState]]:
    return st.lists(node_states(measurements), max_size=30, unique_by=lambda node: node.node_id)


NODE_REQUESTS = st.builds(
    NodeRequest, region=REGIONS, require_region=st.booleans(), max_ask_usd_per_1m=st.none() | st.just(0.7)
)

NEEDS = st.builds(ModelNeed, st.just(MODEL), st.sampled_from([0, 6000, 20000, 22500]))

CATALOGS = st.permutations([ModelNeed(MODEL, 20000), ModelNeed(OTHER, 6000), ModelNeed("brain/mock", mock=True)])

CLASS_REQUESTS = st.builds(
    ClassRequest,
    mode=st.sampled_from(Mode),
    privacy=st.none() | st.sampled_from(Privacy),
    plan=st.sampled_from(Plan),
    max_cost_usd=st.none() | st.just(0.5),
    max_latency_ms=st.none() | st.just(500.0),
    carries_plaintext=st.booleans(),
    names_node_model=st.booleans(),
)

POLICIES = st.sampled_from(CommunityFirst)


def class_lists(
    measurements: st.SearchStrategy = MEASUREMENTS, shares: st.SearchStrategy | None = None
) -> st.SearchStrategy[list[ClassState]]:
    shares = st.none() | st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1) if shares is None else shares
    states = st.builds(
        ClassState,
        resource_class=st.sampled_from(ResourceClass),
        supported=st.booleans(),
        available=st.booleans(),
        cost_usd=measurements,
        latency_ms=measurements,
        reliability=shares,
        quality=shares,
        confidence=st.sampled_from([0, 5, 20]),
        mock=st.booleans(),
    )
    return st.lists(states, max_size=4, unique_by=lambda state: state.resource_class)
