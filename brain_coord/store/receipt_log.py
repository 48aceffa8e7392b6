"""The store's part for receipts: appending, finding, exporting, and the keys that signed them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from brain_coord.receipts.body import ReceiptDraft
from brain_coord.receipts.chain import Sealed
from brain_coord.receipts.history import publish_all
from brain_coord.store import receipt_rows, signer_keys
from brain_coord.store.core import StoreCore

_EXPORTED_AT_ONCE = 500


class ReceiptStore(StoreCore):
    """The receipts of this coordinator's chain, and of the others in a shared database."""

    def append_receipt(self, draft: ReceiptDraft) -> "asyncio.Future[Sealed]":
        """Seal a receipt into the chain; when the future resolves it is durable, in the database or in the spool.

        Until then nothing that the draft holds may change: it is written on the writer's thread.

        Exceptions of the future: `StoreUnavailable`, nothing was recorded; `CanonicalError`, the draft holds something
        that is not JSON.
        """
        return self._writer.submit(draft)

    def append_late(self, draft: Callable[[], ReceiptDraft]) -> "asyncio.Future[Sealed]":
        """As `append_receipt`, with a draft that is made on the event loop when the receipt leaves for its commit.

        Code that runs for some requests in a row costs a third of what it does for each of them between other work.
        """
        return self._writer.submit_late(draft)

    async def get_receipt(self, receipt_id: str) -> Sealed | None:
        """The receipt with an id."""
        if not receipt_id.isprintable():  # anybody may ask for anything, and PostgreSQL takes no text with a NUL
            return None
        spooled = None if self._ledger is None else self._ledger.spool.find(receipt_id)
        return spooled or await self.read(partial(receipt_rows.get_receipt, receipt_id=receipt_id))

    async def recent_receipts(self, limit: int = 50) -> list[Sealed]:
        """The latest receipts of all chains, newest first; without those still in the spool."""
        return await self.read(partial(receipt_rows.recent_receipts, limit=limit))

    async def export_receipts(
        self,
        key_id: str | None = None,
        from_s: float | None = None,
        to_s: float | None = None,
        chain: str | None = None,
    ) -> AsyncIterator[Sealed]:
        """Receipts in chain order, read in pages; only those for which all given filters hold (`to_s` is exclusive)."""
        after = ("", 0)
        while True:
            page = await self.read(
                partial(
                    receipt_rows.page_of_receipts,
                    after=after,
                    key_id=key_id,
                    chain=chain,
                    from_s=from_s,
                    to_s=to_s,
                    limit=_EXPORTED_AT_ONCE,
                )
            )
            for sealed in page:
                yield sealed
            if len(page) < _EXPORTED_AT_ONCE:
                return
            after = (page[-1].chain, page[-1].seq)

    async def signers(self) -> list[dict[str, Any]]:
        """The published key history of every chain in the store (`brain_coord.receipts.history`)."""
        return publish_all(await self.read(signer_keys.list_signer_keys))
