"""The coordinator's memory, as the event loop sees it."""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from brain_coord.store import nodes, receipt_rows, tabs
from brain_coord.store.access import AccessStore
from brain_coord.store.core import StoreOptions
from brain_coord.store.node_memory import NodeStore
from brain_coord.store.receipt_log import ReceiptStore
from brain_coord.store.tab_memory import TabStore

__all__ = ["Store", "StoreOptions"]

_PRUNED_AT_ONCE = 1000


class Store(AccessStore, NodeStore, TabStore, ReceiptStore):
    """Typed access to keys, tokens, nodes, tabs and receipts; open it with `await Store.open(data_dir)`.

    Writes return once they are durable. They are committed in groups by one thread, so awaiting many at once costs no
    more than awaiting one. Reads run on a few threads. Both raise `StoreUnavailable` while the database is away.
    """

    async def prune(self, *, receipts_before_s: float | None = None, outcomes_before_s: float | None = None) -> int:
        """Delete old receipts of this chain, and old outcomes, uptime days and tabs, a little at a time; returns how many.

        The chain stays verifiable: its first remaining link continues from a checkpoint.
        """
        gone = 0
        if receipts_before_s is not None and self.chain is not None:
            gone += await self._repeat(
                partial(
                    receipt_rows.prune_receipts,
                    chain=self.chain,
                    before_s=receipts_before_s,
                    now_s=self._clock(),
                    most=_PRUNED_AT_ONCE,
                )
            )
        if outcomes_before_s is not None:
            gone += await self._repeat(partial(nodes.forget_before, before_s=outcomes_before_s, most=_PRUNED_AT_ONCE))
            gone += await self._repeat(partial(tabs.forget_tabs, before_s=outcomes_before_s, most=_PRUNED_AT_ONCE))
        return gone

    async def thin_outcomes(self, kept: int) -> int:
        """Delete what each node has beyond its latest `kept` outcomes, a little at a time; returns how many went."""
        gone = 0
        for node_id in await self.read(partial(nodes.crowded, most=kept)):
            gone += await self._repeat(partial(nodes.forget_beyond, node_id=node_id, kept=kept, most=_PRUNED_AT_ONCE))
        return gone

    async def _repeat(self, prune: Callable[[Connection], int]) -> int:
        gone = 0
        while count := await self.write(prune):
            gone += count
        return gone
