"""All resource classes of a coordinator, made once and reconfigured while they run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from brain_coord.classes.backend import ClassBackend
from brain_coord.classes.breaker import BreakerRules
from brain_coord.classes.browser import BrowserClass
from brain_coord.classes.cloud import CloudClass
from brain_coord.classes.external import external_class
from brain_coord.classes.health import HealthBook
from brain_coord.classes.node_class import NodeClass, needs_of
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.upstream import Upstream, UpstreamSpec
from brain_coord.classes.upstream_class import UpstreamClass
from brain_coord.classes.upstream_http import UpstreamHttp
from brain_coord.classes.upstream_probe import UpstreamProber
from brain_coord.classes.upstream_target import UpstreamTarget
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.routable import RoutableNodes
from brain_coord.routing.vocabulary import ResourceClass
from brain_node.contract.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """What the operator configures of the classes."""

    cloud: tuple[UpstreamSpec, ...] = ()
    external: tuple[UpstreamSpec, ...] = ()
    breaker: BreakerRules = field(default_factory=BreakerRules)


class Classes:
    """The four classes over one registry. Made inside the event loop that will use them."""

    def __init__(
        self, registry: Registry, catalog: Catalog, capacity: Callable[[], None], later: Callable[[float], None]
    ) -> None:
        """Wire the classes.

        Args:
            registry: of the nodes.
            catalog: of the models that nodes may serve.
            capacity: called when waiting requests may find more to do.
            later: called when they may in some seconds.
        """
        self.http = UpstreamHttp()
        make_target = partial(UpstreamTarget, self.http)
        samples, book = ClassSamples(), HealthBook()
        routable = RoutableNodes(registry, tuple(needs_of(catalog).values()))
        nodes = partial(NodeClass, registry=registry, catalog=catalog, routable=routable)
        self.native = nodes(ResourceClass.NATIVE_NETWORK, operator=False)
        own = nodes(ResourceClass.CLOUD_GPU, operator=True, samples=samples)
        servers = UpstreamClass(
            ResourceClass.CLOUD_GPU, make_target, samples=samples, health=book, on_capacity=capacity
        )
        self.nodes = (self.native, own)
        self.cloud = CloudClass(own, servers)
        self.external = external_class(make_target, on_capacity=capacity)
        self.browser = BrowserClass()
        self._books = (self.native.health, own.health, book, self.external.health)
        for each in self._books:
            each.on_change.append(later)
        self.prober = UpstreamProber(self.http, self.upstreams)

    @property
    def backends(self) -> Sequence[ClassBackend]:
        """Each class once."""
        return [self.native, self.cloud, self.external, self.browser]

    def upstreams(self) -> Iterator[Upstream]:
        """Every configured upstream."""
        yield from self.cloud.servers.upstreams.values()
        yield from self.external.upstreams.values()

    def configure(self, settings: ClassSettings) -> None:
        """Take these upstreams and rules from now on; what runs goes on."""
        self.cloud.servers.configure(settings.cloud)
        self.external.configure(settings.external)
        for book in self._books:
            book.set_rules(settings.breaker)

    def view(self) -> list[dict[str, Any]]:
        """Every upstream for the operator."""
        now = monotonic()
        classes = (self.cloud.servers, self.external)
        return [
            {"class": str(each.resource_class), **upstream.view(now)}
            for each in classes
            for upstream in each.upstreams.values()
        ]

    async def close(self) -> None:
        """Close the connections to upstreams."""
        await self.http.close()
