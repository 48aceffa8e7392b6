"""What `status` prints: the running coordinator, and the cluster it belongs to."""

from typing import Literal

from brain_coord.cli.shapes.base import Shape


class NodeCounts(Shape):
    """Nodes by whether they are linked."""

    connected: int
    known: int


class ReceiptStore(Shape):
    """Where receipts go."""

    state: Literal["ok", "spooling", "refusing"]
    reason: str | None
    spooled: int
    """On disk, not yet in the database."""


class Member(Shape):
    """One coordinator of the cluster."""

    name: str
    address: str
    leaving: bool
    reachable: bool
    """Whether jobs reach it at its address."""
    heard_s_ago: float
    clock_ahead_s: float
    """How far its wall clock is ahead of that of the one that was asked."""
    nodes: int
    """Nodes whose link it holds."""


class Cluster(Shape):
    """The cluster as this coordinator sees it."""

    state: Literal["together", "alone"]
    reason: str | None
    replicas: list[str]
    """Those that take jobs, this one among them."""
    limits: str
    """How far the limits of keys hold."""
    nodes_moved: int
    """Nodes that it asked to link again elsewhere, as it held more than its share."""
    name: str
    name_taken: bool
    """Whether another one bears this name too."""
    coordinators: list[Member]
    hops_out: int
    """Requests that another coordinator carries to its node."""
    hops_in: int
    """Requests of others that go to nodes of this one."""


class Status(Shape):
    """The running coordinator."""

    version: str
    chain: str
    leaving: bool
    running: int
    waiting: int
    nodes: NodeCounts
    receipts: ReceiptStore
    cluster: Cluster | None
    """Null while it runs alone."""
