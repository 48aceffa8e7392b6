"""The closed vocabularies of routing: resource classes, trust, privacy, modes, plans, node states."""

from enum import StrEnum


class ResourceClass(StrEnum):
    """A kind of hardware that a request can run on."""

    BROWSER_NETWORK = "BROWSER_NETWORK"  # browser tabs running WebGPU kernels or Qwen3 stages
    NATIVE_NETWORK = "NATIVE_NETWORK"  # Brain Nodes serving allowlisted models through vLLM
    CLOUD_GPU = "CLOUD_GPU"  # vLLM on hardware that the operator runs
    EXTERNAL_MODEL = "EXTERNAL_MODEL"  # an OpenAI-compatible upstream


class Trust(StrEnum):
    """Who could read the plaintext of a request that runs there."""

    UNTRUSTED = "untrusted-distributed"  # anybody who joined
    OPERATOR = "operator"  # whoever runs this coordinator
    THIRD_PARTY = "third-party"  # a company with terms of its own


class Privacy(StrEnum):
    """How far the plaintext of a request may travel."""

    PUBLIC = "PUBLIC"
    STANDARD = "STANDARD"
    PRIVATE = "PRIVATE"


class Mode(StrEnum):
    """What a request wants its class to be good at."""

    AUTO = "AUTO"
    COMMUNITY = "COMMUNITY"  # AUTO, with a Brain Node taken first
    CHEAP = "CHEAP"
    FAST = "FAST"
    QUALITY = "QUALITY"
    BROWSER_ONLY = "BROWSER_ONLY"


class Plan(StrEnum):
    """What the client's key pays for."""

    FREE = "free"
    PAID = "paid"


class CommunityFirst(StrEnum):
    """The operator's `BRAIN_COMMUNITY_FIRST`: for whom a PUBLIC request in AUTO becomes COMMUNITY."""

    FREE = "free"  # for keys on the free plan
    ALL = "all"  # for every key
    OFF = "off"  # for nobody who does not ask


class Exclusion(StrEnum):
    """Why a class cannot take a request. They are listed in this order."""

    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    BROWSER_ONLY = "browser_only"
    PRIVACY = "privacy"
    OVER_MAX_COST = "over_max_cost"
    OVER_MAX_LATENCY = "over_max_latency"


class Liveness(StrEnum):
    """The state of a node as the coordinator sees it."""

    ONLINE = "ONLINE"  # connected, no job running
    BUSY = "BUSY"  # at least one job running; still eligible while a slot is free
    DEGRADED = "DEGRADED"  # set aside after faults, until a canary succeeds
    DRAINING = "DRAINING"  # finishes what it has, takes nothing new
    OFFLINE = "OFFLINE"  # not connected, or silent for three heartbeats


class Basis(StrEnum):
    """What a node's speed stands on."""

    UNMEASURED = "unmeasured"  # not one token was timed by the coordinator yet
    COORDINATOR_TIMED = "coordinator-timed"
