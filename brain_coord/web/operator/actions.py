"""What an operator can do to a node: ban, trust, drain, and the way back from each."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.store.store import Store
from brain_node.contract.messages import Drain

POLICY_VIOLATION: Final = 1008
TRY_AGAIN: Final = 1012


class NoSuchNode(Exception):  # noqa: N818
    """No node with this id has joined."""


@dataclass(frozen=True, slots=True)
class NodeActions:
    """Each change is durable before it holds."""

    registry: Registry
    store: Store

    @property
    def names(self) -> Mapping[str, Callable[[Node, str], Awaitable[None]]]:
        """Every action by its name in a URL."""
        return {
            "ban": self._ban,
            "unban": self._unban,
            "trust": self._trust,
            "untrust": self._untrust,
            "drain": self._drain,
            "undrain": self._undrain,
        }

    async def act(self, name: str, node_id: str, reason: str = "") -> None:
        """Do one thing to one node.

        Raises:
            NoSuchNode: it never joined.
            StoreUnavailable: nothing was changed.
        """
        node = self.registry.get(node_id)
        if node is None:
            raise NoSuchNode(node_id)
        await self.names[name](node, reason)

    async def _ban(self, node: Node, reason: str) -> None:
        reason = reason or "by the operator"
        await self.store.set_ban(node.node_id, reason)
        self.registry.set_state(node, "banned by the operator", banned=reason)
        if node.session is not None:
            await node.session.link.close(POLICY_VIOLATION, f"banned: {reason}")

    async def _unban(self, node: Node, _: str) -> None:
        await self.store.set_ban(node.node_id, None)
        self.registry.set_state(node, "no longer banned", banned=None)

    async def _trust(self, node: Node, _: str) -> None:
        await self.store.set_trust(node.node_id, True)
        self.registry.set_state(node, "trusted by the operator", trusted=True)

    async def _untrust(self, node: Node, _: str) -> None:
        await self.store.set_trust(node.node_id, False)
        self.registry.set_state(node, "no longer trusted", trusted=False)

    async def _drain(self, node: Node, _: str) -> None:
        await self.store.set_drain(node.node_id, True)
        self.registry.set_state(node, "drained by the operator", operator_drain=True)
        if node.session is not None:
            await node.session.link.send(Drain(deadline_s=0.0))

    async def _undrain(self, node: Node, _: str) -> None:
        await self.store.set_drain(node.node_id, False)
        self.registry.set_state(node, "no longer drained", operator_drain=False)
        if node.session is not None:
            # A node keeps a drain until its next session, so it is asked to come back.
            await node.session.link.close(TRY_AGAIN, "no longer drained")
