"""Every published constant of both routers. ROUTING.md shows them; a test compares the two."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from brain_coord.routing.vocabulary import Mode, Privacy, ResourceClass, Trust


@dataclass(frozen=True, slots=True)
class ClassWeights:
    """How much each penalty of a class counts in one mode, and what an UNKNOWN value is taken for."""

    cost: float
    latency: float
    reliability: float
    quality: float
    unknown_penalty: float


_BALANCED: Final = ClassWeights(cost=0.40, latency=0.25, reliability=0.25, quality=0.10, unknown_penalty=0.75)

CLASS_WEIGHTS: Final[Mapping[Mode, ClassWeights]] = MappingProxyType(
    {
        Mode.AUTO: _BALANCED,
        Mode.COMMUNITY: _BALANCED,
        Mode.BROWSER_ONLY: _BALANCED,
        Mode.CHEAP: ClassWeights(cost=0.80, latency=0.05, reliability=0.15, quality=0.0, unknown_penalty=1.0),
        Mode.FAST: ClassWeights(cost=0.05, latency=0.80, reliability=0.15, quality=0.0, unknown_penalty=1.0),
        Mode.QUALITY: ClassWeights(cost=0.05, latency=0.05, reliability=0.30, quality=0.60, unknown_penalty=1.0),
    }
)

TRUST_OF: Final[Mapping[ResourceClass, Trust]] = MappingProxyType(
    {
        ResourceClass.BROWSER_NETWORK: Trust.UNTRUSTED,
        ResourceClass.NATIVE_NETWORK: Trust.UNTRUSTED,
        ResourceClass.CLOUD_GPU: Trust.OPERATOR,
        ResourceClass.EXTERNAL_MODEL: Trust.THIRD_PARTY,
    }
)

ALLOWED_TRUST: Final[Mapping[Privacy, frozenset[Trust]]] = MappingProxyType(
    {
        Privacy.PUBLIC: frozenset({Trust.UNTRUSTED, Trust.OPERATOR, Trust.THIRD_PARTY}),
        Privacy.STANDARD: frozenset({Trust.OPERATOR, Trust.THIRD_PARTY}),
        Privacy.PRIVATE: frozenset({Trust.OPERATOR}),
    }
)

# NodeScore: the five terms, in the order they are published.
CAPABILITY_WEIGHT: Final = 0.30
AVAILABILITY_WEIGHT: Final = 0.25
LATENCY_WEIGHT: Final = 0.15
REPUTATION_WEIGHT: Final = 0.20
PRICE_WEIGHT: Final = 0.10

LOADED_FACTOR: Final = 1.0
NOT_LOADED_FACTOR: Final = 0.6
SPEED_FLOOR: Final = 0.5
"""The share of capability that does not depend on speed."""
UNMEASURED_SPEED_RATIO: Final = 0.5
"""What stands for tok/s ÷ pool max on a node whose speed is not known."""

QUEUE_DEPTH_PER_SLOT: Final = 4
"""A queue of this many jobs for each slot leaves no availability."""

RTT_CEILING_MS: Final = 300.0
"""At this round trip and above, nothing is left of the RTT share."""
RTT_SHARE: Final = 0.7
MEDIAN_BONUS: Final = 0.3
REGION_BONUS: Final = 0.2
UNMEASURED_LATENCY: Final = 0.5

PRICE_FLOOR: Final = 0.2
"""The price term of the dearest eligible node."""
UNSET_PRICE: Final = 0.5

UNTRIED_RELIABILITY: Final = 70
"""The Brain Reliability Score of a node without outcomes."""

SCORE_DECIMALS: Final = 6
"""Terms and totals are rounded to this many decimals, after the sum."""

NAMED_NODES: Final = 20
"""How many nodes a no-capacity sentence names before it counts the rest by reason."""
