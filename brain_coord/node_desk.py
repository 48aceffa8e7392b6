"""What the operator's commands do to nodes while a coordinator runs: show, ban, trust, drain, and who comes from where."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import structlog

from brain_coord.admin import AdminError, Operation
from brain_coord.fleet.addresses import AddressBook
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.link.orders import Orders
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import NodeRecord
from brain_coord.store.store import Store

log = structlog.get_logger("brain.fleet")

DEFAULT_BAN = "by the operator"


@dataclass(slots=True)
class NodeDesk:
    """The operator's word is written down first, then carried out."""

    store: Store
    registry: Registry
    scores: ScoreKeeper
    orders: Orders
    addresses: AddressBook
    know: Callable[[NodeRecord], Node]
    """The node of a record, made known if it is new here."""
    on_decided: list[Callable[[str], None]] = field(default_factory=list)
    """Told the id of every node of which something was decided here."""

    def operations(self) -> dict[str, Operation]:
        """By their names on the administration socket."""
        return {
            "node_show": self.show,
            "node_addresses": self.by_address,
            "node_ban": self._on_node(self.ban),
            "node_unban": self._on_node(self.unban),
            "node_trust": self._on_node(self.trust),
            "node_untrust": self._on_node(self.untrust),
            "node_drain": self._on_node(self.drain),
            "node_undrain": self._on_node(self.undrain),
        }

    def _on_node(self, act: Callable[[Node, dict[str, Any]], Awaitable[None]]) -> Operation:
        async def operation(request: dict[str, Any]) -> dict[str, Any]:
            node = self._node(request)
            try:
                await act(node, request)
            except StoreUnavailable as error:
                raise AdminError(f"{error.message}; nothing was changed") from None
            return self._view(node)

        return operation

    def _node(self, request: dict[str, Any]) -> Node:
        node = self.registry.get(str(request.get("node_id")))
        if node is None:
            raise AdminError(f"no node {request.get('node_id')} has joined")
        return node

    def _view(self, node: Node) -> dict[str, Any]:
        state = node.state_view(monotonic())
        return {
            **node.public_view(),
            "reason": state.reason,
            "way_back": state.way_back,
            "banned": node.banned,
            "draining": node.operator_drain,
            "linked_at": None if node.elsewhere is None else node.elsewhere.replica,
        }

    async def show(self, request: dict[str, Any]) -> dict[str, Any]:
        """One node with everything its score and its state stand on."""
        node, now = self._node(request), monotonic()
        health = node.health
        return {
            **self._view(node),
            "address": None if node.session is None else node.session.address,
            "first_seen_s": node.first_seen,
            "score": self.scores.explanation(node) or await self.scores.remembered(node),
            "health": {
                "degraded": node.degraded,
                "suspect": health.suspect,
                "watched": health.watched,
                "faults_in_row": health.faults_in_row,
                "canaries_failed_in_row": health.canaries_failed_in_row,
                "benchmarks_failed_in_row": health.benchmarks_failed_in_row,
                "comparisons": len(health.compared),
                "comparisons_lost": health.mismatches,
                "next_canary_in_s": None
                if health.next_probe_at is None
                else round(max(0.0, health.next_probe_at - now), 1),
            },
            "skips": self.registry.skip_counts(node, now),
        }

    async def by_address(self, _: dict[str, Any]) -> list[dict[str, Any]]:
        """Who joins from where; never shown to the public."""
        return self.addresses.view(monotonic())

    async def ban(self, node: Node, request: dict[str, Any]) -> None:
        """No more work, no more sessions, until it is lifted."""
        reason = str(request.get("reason") or DEFAULT_BAN)[:200]
        await self.store.set_ban(node.node_id, reason)
        await self._decided(node, banned=reason)

    async def unban(self, node: Node, _: dict[str, Any]) -> None:
        """It may join again; its score is what it was."""
        await self.store.set_ban(node.node_id, None)
        await self._decided(node, banned=None)

    async def trust(self, node: Node, _: dict[str, Any]) -> None:
        """Its answers and token counts may stand for its model's. It is ranked like any other."""
        await self.store.set_trust(node.node_id, True)
        await self._decided(node, trusted=True)

    async def untrust(self, node: Node, _: dict[str, Any]) -> None:
        """As if it had never been trusted."""
        await self.store.set_trust(node.node_id, False)
        await self._decided(node, trusted=False)

    async def drain(self, node: Node, _: dict[str, Any]) -> None:
        """No new jobs; running ones go on. Holds over restarts."""
        await self.store.set_drain(node.node_id, True)
        await self._decided(node, operator_drain=True)

    async def undrain(self, node: Node, _: dict[str, Any]) -> None:
        """Jobs again, as soon as the node has linked anew."""
        await self.store.set_drain(node.node_id, False)
        await self._decided(node, operator_drain=False)

    async def _decided(self, node: Node, **decision: Any) -> None:
        await self.carry_out(node, **decision)
        for told in self.on_decided:
            told(node.node_id)

    async def carry_out(self, node: Node, **decision: Any) -> None:
        """Make what was decided true here: `banned`, `trusted` or `operator_drain`."""
        (name, value), orders = next(iter(decision.items())), self.orders
        self.registry.set_state(node, _REASONS[name, bool(value)], **decision)
        if name == "banned" and value is not None:
            await orders.expel(node, value)
        elif name == "operator_drain" and value:
            await orders.drain(node)
        elif name == "operator_drain":
            orders.undrain(node)

    async def take_over(self, record: NodeRecord) -> None:
        """Make true what was decided at another coordinator that shares the store."""
        node = self.know(record)
        if node.banned != record.banned_reason:
            await self.carry_out(node, banned=record.banned_reason)
        if node.trusted is not record.trusted:
            await self.carry_out(node, trusted=record.trusted)
        if node.operator_drain is not record.draining:
            await self.carry_out(node, operator_drain=record.draining)

    async def sync(self, node_id: str | None) -> None:
        """Read from the store what was decided of one node, or of all, and carry it out."""
        try:
            if node_id is None:
                records = await self.store.list_nodes()
            else:
                record = await self.store.get_node(node_id)
                records = [] if record is None else [record]
        except StoreUnavailable as error:
            log.warning("decisions of operators not read", cause=str(error))
            return
        for record in records:
            await self.take_over(record)


_REASONS: Final = {
    ("banned", True): "banned",
    ("banned", False): "no longer banned",
    ("trusted", True): "trusted",
    ("trusted", False): "no longer trusted",
    ("operator_drain", True): "drained by the operator",
    ("operator_drain", False): "taken back into service",
}
