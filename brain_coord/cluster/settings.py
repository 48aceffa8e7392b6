"""What one coordinator of a cluster is configured with."""

from dataclasses import dataclass, field
from pathlib import Path

from brain_coord.cluster.secret import ClusterSecret


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The `[cluster]` table, read and checked. Times in seconds.

    Attributes:
        url: of Redis or Valkey.
        name: of this coordinator; `None` takes the name of its receipt chain.
        address: where the other coordinators reach this one.
        secret: shared by all of them.
        beat_s: how often it says that it is there.
        ttl_s: after so much silence it counts as gone.
        leave_s: how long it goes on taking requests when it stops, so that the load balancer sees it leave.
        ca_file: private CA of the other coordinators' certificates.
    """

    url: str = field(repr=False)
    name: str | None
    address: str
    secret: ClusterSecret
    beat_s: float = 1.0
    ttl_s: float = 6.0
    leave_s: float = 5.0
    ca_file: Path | None = None
