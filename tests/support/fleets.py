"""Random fleets of any size from a seed, with few distinct values so that ties are common."""

import random
from dataclasses import replace

from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState
from brain_coord.routing.vocabulary import Basis, Liveness

CATALOG = [
    ModelNeed("alpha", 0),
    ModelNeed("brain/mock", mock=True),
    ModelNeed("beta", 6000),
    ModelNeed("gamma", 20000),
    ModelNeed("delta", 22500),
]
NAMES = [model.model_id for model in CATALOG]
NAN, INF = float("nan"), float("inf")


def random_node(rng: random.Random, node_id: str, *, spread: bool = False, sick: float = 0.2) -> NodeState:
    """A node; `spread` draws measurements that hardly ever tie, `sick` is the share that cannot work."""
    served = frozenset(rng.sample(NAMES, rng.randint(0, 3)))
    slots = rng.choice([0, 1, 2, 4, 4, 8])

    def figure(*few: float | None) -> float | None:
        return round(rng.uniform(0, 300), 3) if spread and rng.random() < 0.9 else rng.choice(few)

    return NodeState(
        node_id=node_id,
        state=rng.choice(list(Liveness)) if rng.random() < sick else rng.choice([Liveness.ONLINE, Liveness.BUSY]),
        slots=slots,
        active=rng.randint(0, slots) if rng.random() < 0.5 else 0,
        queue=rng.choice([0, 0, 0, 3, 40]),
        serves=served,
        loaded=frozenset(name for name in served if rng.random() < 0.8),
        reported_vram_mib=rng.choice([None, 8188, 22919, 24564]),
        tok_s={name: figure(None, 0.0, 40.0, 80.0, NAN) for name in rng.sample(NAMES, 2)},
        benchmark_tok_s=figure(None, 0.0, 50.0, INF),
        basis=rng.choice([Basis.COORDINATOR_TIMED] * 4 + [Basis.UNMEASURED]),
        rtt_ms=figure(None, 0.0, 20.0, 30.0, 1e308, 5e-324, -1.0),
        reliability=rng.choice([0, 70, 70, 70, 93, 100]),
        region=rng.choice([None, "eu", "us"]),
        ask_usd_per_1m=rng.choice([None, None, 0.0, 0.5, 1.0, 0.123, NAN]),
    )


def random_id(rng: random.Random) -> str:
    return f"N-{rng.getrandbits(64):016X}"


def random_fleet(rng: random.Random, size: int, **options: float) -> list[NodeState]:
    return [random_node(rng, random_id(rng), **options) for _ in range(size)]


def twins(rng: random.Random, size: int) -> list[NodeState]:
    """Nodes that differ in nothing but their ids, and a few that differ in the last digit of a measurement."""
    served = frozenset({"alpha", "beta"})
    model = replace(random_node(rng, "N-0", sick=0), slots=4, active=0, serves=served, loaded=served)
    model = replace(model, basis=Basis.COORDINATOR_TIMED, reported_vram_mib=None, rtt_ms=10.05)
    return [replace(model, node_id=random_id(rng), rtt_ms=10.05 if rng.random() < 0.9 else 10.051) for _ in range(size)]


def random_request(rng: random.Random, nodes: list[NodeState]) -> NodeRequest:
    pinned = rng.random() < 0.05
    return NodeRequest(
        region=rng.choice([None, None, "eu", "moon"]),
        require_region=rng.random() < 0.3,
        max_ask_usd_per_1m=rng.choice([None, None, 0.5, 0.0, NAN, -1.0]),
        node=rng.choice([node.node_id for node in nodes] or ["N-none"]) if pinned else None,
    )
