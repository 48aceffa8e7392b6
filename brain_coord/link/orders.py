"""What the coordinator tells nodes on its own account: drain, come back, a ban, and why requests passed them by."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.skips import WINDOW_S
from brain_node.contract.limits import LINK_AGAIN
from brain_node.contract.messages import Drain, Notice, Refused

DRAIN_S: Final = 3600.0
"""What a drained node is told about its running jobs: nobody cuts them."""

LOOK_S: Final = 0.2
SKIP_NOTICE_S: Final = 60.0
"""How often each node is told why requests passed it by, if that changed."""

GOING_AWAY: Final = 1001
POLICY: Final = 1008


@dataclass(slots=True)
class Orders:
    """Messages to linked nodes."""

    registry: Registry
    _told: dict[str, dict[str, int]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def drain(self, node: Node) -> None:
        """Tell a node that it is taken out of service; running jobs go on."""
        if node.session is not None:
            await node.session.link.send(Drain(deadline_s=DRAIN_S))

    def undrain(self, node: Node) -> None:
        """A drain holds until the session ends, so end it: at once when nothing runs, else as soon as nothing does."""
        if node.session is not None:
            task = asyncio.create_task(self._renew(node, node.session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _renew(self, node: Node, session: Session) -> None:
        until = monotonic() + DRAIN_S
        while node.session is session and node.active and monotonic() < until:  # noqa: ASYNC110 — jobs end in many places
            await asyncio.sleep(LOOK_S)
        if node.session is session and not node.operator_drain:
            await session.link.close(LINK_AGAIN, "taken back into service")

    async def expel(self, node: Node, reason: str) -> None:
        """A ban: the node is told, its jobs end, and it does not come back."""
        session = node.session
        if session is not None:
            message = f"this node is banned: {reason}"
            await session.link.send(Refused(code="banned", message=message, retry=False))
            self.registry.disconnect(node, session, "banned")
            await session.link.close(POLICY, "banned")

    async def tell_skips(self) -> None:
        """Tell every node now and then why requests passed it by; runs for ever."""
        while True:
            nodes = list(self.registry.nodes.values())
            for node in nodes:
                await self._tell_skips(node)
                await asyncio.sleep(SKIP_NOTICE_S / len(nodes))
            if not nodes:
                await asyncio.sleep(1.0)

    async def _tell_skips(self, node: Node) -> None:
        if node.session is None:
            self._told.pop(node.node_id, None)
            return
        counts = self.registry.skip_counts(node, monotonic())
        if counts != self._told.get(node.node_id, {}):
            self._told[node.node_id] = counts
            await node.session.link.send(skip_notice(counts))


def skip_notice(counts: dict[str, int]) -> Notice:
    """Why requests passed a node by within the last hour, as `brain-node why` reads it."""
    total = sum(counts.values())
    first = next(iter(counts), None)
    sentence = f"{total} requests passed this node by in the last hour" + (f", most for: {first}" if first else "")
    return Notice(code="skipped", message=sentence, data={"skipped": counts, "window_s": WINDOW_S})
