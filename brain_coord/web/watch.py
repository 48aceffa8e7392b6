"""Everything that people and their monitoring look at, wired over one coordinator: pages, live view, operator, metrics."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response

from brain_coord import __version__
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.entry import Gateway
from brain_coord.gateway.routes.context import ReceiptShelf
from brain_coord.observe.metrics import Metrics, Sources
from brain_coord.observe.tab_gauges import TabFigures
from brain_coord.store.store import Store
from brain_coord.web.assets import assets_router
from brain_coord.web.operator.routes import NodeAction, OperatorPages
from brain_coord.web.pages import pages_router
from brain_coord.web.site import Site


@dataclass(slots=True)
class Watch:
    """Hooks itself into a gateway and a registry; `router` serves what it saw.

    Attributes:
        explain: a node's reliability score (`score`, `terms`); `None` for a node without one.
        skips: why requests passed a node by within the last hour, most frequent first.
        actions: what an operator can do to a node, by name.
        base: path prefix that a proxy in front keeps.
        cluster: how the cluster stands that the coordinator belongs to.
        tabs: how the browser network stands.
    """

    gateway: Gateway
    registry: Registry
    store: Store
    receipts: ReceiptShelf
    data_dir: Path
    explain: Callable[[Node], Mapping[str, Any] | None]
    skips: Callable[[Node], Mapping[str, int]]
    actions: Mapping[str, NodeAction]
    base: str = ""
    cluster: Callable[[], Mapping[str, Any]] | None = None
    tabs: Callable[[], TabFigures] = TabFigures
    site: Site = field(init=False)
    metrics: Metrics = field(init=False)
    router: APIRouter = field(init=False)

    def __post_init__(self) -> None:
        gateway, registry = self.gateway, self.registry
        self.site = Site(gateway, registry, self.receipts, self.explain, self.skips, self.base)
        sources = Sources(
            registry=registry,
            running=lambda: len(gateway.running),
            waiting=lambda: len(gateway.waiting),
            bodies=lambda: gateway.bodies.held_bytes,
            receipts=self.receipts.health,
            models=frozenset(model.id for model in gateway.decider.catalog),
            version=__version__,
            cluster=lambda: None if self.cluster is None else self.cluster(),
            tabs=self.tabs,
        )
        self.metrics = Metrics(sources)
        gateway.finished.watchers.append(self.metrics.finished)
        gateway.on_refused.append(lambda error: self.metrics.request_refused(error.code))
        registry.on_change.append(self.metrics.changed)
        registry.on_heartbeat.append(self.metrics.heartbeat)
        operator = OperatorPages(self.site, self.store, self.actions, self.data_dir)
        self.router = APIRouter(include_in_schema=False)
        self.router.include_router(assets_router())
        self.router.include_router(operator.router())
        self.router.include_router(pages_router(self.site, operator.is_operator))
        self.router.add_api_route("/metrics", self._metrics, methods=["GET"])

    async def _metrics(self) -> Response:
        """Metrics in Prometheus' text format."""
        self.gateway.finished.tell()
        return Response(await self.metrics.expose(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def top(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """The same figures as /network, for `brain-coord top`."""
        return await self.site.figures()

    async def run(self) -> None:
        """Everything that goes on by itself; runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.site.run())
            tasks.create_task(self.metrics.run())

    def close(self) -> None:
        """Let every viewer go, so that a stop need not wait for them."""
        self.site.close()
