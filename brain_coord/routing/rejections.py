"""Why a node cannot take a request: the checks as bits, and the words for them.

A decision looks at every node but words are only needed for those somebody reads, so a rejection is kept as an integer
and rendered on demand.
"""

from collections.abc import Iterator
from typing import Final

from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.vocabulary import Basis, Liveness

# In the order in which they are told. The first four exclude each other.
OFFLINE: Final = 1 << 0
DRAINING: Final = 1 << 1
DEGRADED: Final = 1 << 2
NO_FREE_SLOT: Final = 1 << 3
NOT_SERVED: Final = 1 << 4
NOT_BENCHMARKED: Final = 1 << 5
TOO_LITTLE_VRAM: Final = 1 << 6
WRONG_REGION: Final = 1 << 7
ABOVE_BUDGET: Final = 1 << 8

_CANNOT_WORK: Final = {Liveness.OFFLINE: OFFLINE, Liveness.DRAINING: DRAINING, Liveness.DEGRADED: DEGRADED}


def rejection_bits(node: NodeState, request: NodeRequest, model: ModelNeed) -> int:
    """Everything that keeps a node from a request; 0 is eligible."""
    bits = _CANNOT_WORK.get(node.state, 0)
    if not bits and (node.active >= node.slots or node.slots <= 0):
        bits = NO_FREE_SLOT
    if model.model_id not in node.serves:
        bits |= NOT_SERVED
    if node.basis == Basis.UNMEASURED:
        bits |= NOT_BENCHMARKED
    # Memory is a claim, and a node that makes none is not excluded by it: its engine has shown that the model runs.
    if node.reported_vram_mib is not None and node.reported_vram_mib < model.min_vram_mib:
        bits |= TOO_LITTLE_VRAM
    if request.require_region and request.region is not None and node.region != request.region:
        bits |= WRONG_REGION
    ask, budget = node.ask_usd_per_1m, request.max_ask_usd_per_1m
    if budget is not None and is_known(ask) and is_known(budget) and ask > budget:
        bits |= ABOVE_BUDGET
    return bits


def rejection_words(bits: int, node: NodeState, request: NodeRequest, model: ModelNeed) -> Iterator[str]:
    """The same as words, in the published order."""
    if bits & OFFLINE:
        yield "offline"
    if bits & DRAINING:
        yield "draining"
    if bits & DEGRADED:
        yield "degraded"
    if bits & NO_FREE_SLOT:
        yield "no free slot"
    if bits & NOT_SERVED:
        yield f"does not serve {model.model_id}"
    if bits & NOT_BENCHMARKED:
        yield "not yet benchmarked"
    if bits & TOO_LITTLE_VRAM:
        yield vram_shortfall(node.reported_vram_mib or 0, model.min_vram_mib)
    if bits & WRONG_REGION:
        yield f"not in {request.region}"
    if bits & ABOVE_BUDGET:
        yield "ask above budget"


def vram_shortfall(reported_mib: int, required_mib: int) -> str:
    """`VRAM 8 GB < 20 GB required`, where a GB is 1024 MiB.

    Reported is rounded half up and required is rounded up, so that a card is called by its nameplate. Where whole GB
    would read `8 GB < 8 GB` both get one decimal, and where even that would not differ the reported one is rounded
    down: the comparison itself is made in MiB and the sentence must not deny it.
    """
    reported, required = _half_up(reported_mib), _up(required_mib)
    if reported < required:
        return f"VRAM {reported} GB < {required} GB required"
    reported_tenths, required_tenths = _half_up(10 * reported_mib), _up(10 * required_mib)
    if reported_tenths >= required_tenths:
        reported_tenths = 10 * reported_mib // 1024
    return f"VRAM {_tenths(reported_tenths)} GB < {_tenths(required_tenths)} GB required"


def _half_up(mib: int) -> int:
    return (mib + 512) // 1024


def _up(mib: int) -> int:
    return -(-mib // 1024)


def _tenths(tenths: int) -> str:
    return f"{tenths // 10}.{tenths % 10}"
