"""The tables of the configuration file about requests: what each may cost, how long it may take, and who may have how many."""

from typing import Annotated, Final

from pydantic import Field, model_validator

from brain_coord.classes.breaker import BreakerRules
from brain_coord.config.values import KIB, MIB, Count, Seconds, Table
from brain_coord.gateway.attempts import Limits
from brain_coord.gateway.generation import GatewaySettings
from brain_coord.gateway.guard import ConnectionBounds
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.routing.vocabulary import Plan
from brain_coord.settings import DEFAULT_QUEUE
from brain_node.contract.limits import MOST_BODY_BYTES

_GATEWAY: Final = GatewaySettings()
_LIMITS: Final = Limits()
_BOUNDS: Final = ConnectionBounds()
_BREAKER: Final = BreakerRules()

Rate = Annotated[int, Field(ge=1, le=100_000_000, description="requests a minute, and the most at once")]
Concurrent = Annotated[int, Field(ge=1, le=1_000_000, description="requests at a time, waiting ones included")]
QueueShare = Annotated[float, Field(gt=0, le=1, description="part of the queue that one key may fill")]


class LimitsTable(Table):
    """`[limits]`: what a request may cost before it is admitted."""

    body_mib: int = Field(
        _GATEWAY.body_bytes // MIB, ge=1, le=MOST_BODY_BYTES // MIB, description="largest request body"
    )
    bodies_mib: int = Field(
        _GATEWAY.bodies_bytes // MIB,
        ge=1,
        le=1_000_000,
        description="for all bodies above 64 KiB that are held at a time; several of one key leave as much free",
    )
    body_idle_s: Seconds = Field(_GATEWAY.body_idle_s, description="the most between two pieces of a body")
    body_kib_per_s: float = Field(
        _GATEWAY.body_bytes_per_s / KIB, gt=0, le=1_000_000, description="what a body must keep up after that"
    )
    connections: Count = Field(_BOUNDS.connections, description="most HTTP connections; nodes are not counted")
    head_kib: int = Field(_BOUNDS.head_bytes // KIB, ge=4, le=1024, description="largest request line with headers")
    headers: int = Field(_BOUNDS.headers, ge=16, le=1000, description="most headers")
    head_s: Seconds = Field(_BOUNDS.head_s, description="the most that a head may take")
    idle_s: Seconds = Field(_BOUNDS.idle_s, description="how long a connection may be idle")

    @model_validator(mode="after")
    def _fits(self) -> "LimitsTable":
        if self.bodies_mib < self.body_mib:
            raise ValueError("bodies_mib is less than body_mib, so that the largest body could never come")
        return self


class Deadlines(Table):
    """`[deadlines]`: how long each phase of a request may take."""

    accept_s: Seconds = Field(_LIMITS.phases.accept_s, description="until a target has taken the job")
    first_output_s: Seconds = Field(_LIMITS.phases.first_output_s, description="until its first output")
    between_events_s: Seconds = Field(_LIMITS.phases.between_events_s, description="between two events of a stream")
    slowest_tok_s: float = Field(
        _LIMITS.phases.slowest_tok_s,
        gt=0,
        le=100_000,
        description="an answer that is not streamed gets first_output_s, and the time for its tokens at this speed",
    )
    whole_s: Seconds = Field(_LIMITS.whole_s, description="for the whole request")
    attempts: int = Field(_LIMITS.attempts, ge=1, le=10, description="targets that are tried for one request")


class Queue(Table):
    """`[queue]`: waiting for a free slot."""

    limit: Count = Field(DEFAULT_QUEUE, description="requests that may wait at a time")
    wait_s: float = Field(_GATEWAY.queue_s, ge=0, le=3600, description="how long each may wait")


class Streams(Table):
    """`[streams]`: clients of streamed answers."""

    keepalive_s: Seconds = Field(_GATEWAY.keepalive_s, description="a comment is sent when nothing was for this long")
    stall_s: Seconds = Field(_BOUNDS.stall_s, description="a client that reads nothing for this long is cut off")


class FreePlan(Table):
    """`[plans.free]`: what each key on the free plan may do."""

    requests_per_min: Rate = DEFAULT_PLANS[Plan.FREE].requests_per_min
    concurrent: Concurrent = DEFAULT_PLANS[Plan.FREE].concurrent
    queue_share: QueueShare = DEFAULT_PLANS[Plan.FREE].queue_share


class PaidPlan(Table):
    """`[plans.paid]`: what each key on the paid plan may do."""

    requests_per_min: Rate = DEFAULT_PLANS[Plan.PAID].requests_per_min
    concurrent: Concurrent = DEFAULT_PLANS[Plan.PAID].concurrent
    queue_share: QueueShare = DEFAULT_PLANS[Plan.PAID].queue_share


class Plans(Table):
    """`[plans]`."""

    free: FreePlan = FreePlan()
    paid: PaidPlan = PaidPlan()


class BreakerTable(Table):
    """`[breaker]`: when a target that fails is passed over, and for how long."""

    faults: int = Field(_BREAKER.faults, ge=1, le=1000, description="faults in a row that pause a target")
    first_open_s: Seconds = Field(_BREAKER.first_open_s, description="first pause; each further one twice as long")
    max_open_s: Seconds = Field(_BREAKER.max_open_s, description="longest pause")
    probe_s: Seconds = Field(_BREAKER.probe_s, description="how long the one request that tries it keeps others out")

    @model_validator(mode="after")
    def _grows(self) -> "BreakerTable":
        if self.max_open_s < self.first_open_s:
            raise ValueError("max_open_s is less than first_open_s")
        return self
