"""The configuration file: all of its tables, and what must hold between them."""

from pydantic import model_validator

from brain_coord.config.node_tables import Join, Measure, Routing
from brain_coord.config.request_tables import BreakerTable, Deadlines, LimitsTable, Plans, Queue, Streams
from brain_coord.config.server_tables import ClusterTable, Log, Server, StoreTable, Tracing
from brain_coord.config.upstream_tables import UpstreamTable
from brain_coord.config.values import Table


class Config(Table):
    """The whole file."""

    server: Server = Server()
    store: StoreTable = StoreTable()
    cluster: ClusterTable = ClusterTable()
    routing: Routing = Routing()
    join: Join = Join()
    measure: Measure = Measure()
    limits: LimitsTable = LimitsTable()
    deadlines: Deadlines = Deadlines()
    queue: Queue = Queue()
    streams: Streams = Streams()
    plans: Plans = Plans()
    breaker: BreakerTable = BreakerTable()
    tracing: Tracing = Tracing()
    log: Log = Log()
    cloud: tuple[UpstreamTable, ...] = ()
    external: tuple[UpstreamTable, ...] = ()

    @model_validator(mode="after")
    def _names(self) -> "Config":
        names = [upstream.name for upstream in (*self.cloud, *self.external)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the name {twice[0]} stands for more than one upstream")
        return self
