"""Waiting for a store, and checking what it holds."""

import asyncio

from brain_coord.receipts.verify import verify_lines


async def recovered(store):
    """Until the database is in use again and the spool is empty."""
    async with asyncio.timeout(60):
        while store.health.state != "ok" or (store._ledger is not None and store._ledger.waiting):  # noqa: ASYNC110  (its thread tells nobody when it has caught up)
            await asyncio.sleep(0.01)


async def chain_of(store):
    """The ids of the receipts of a store's own chain, which must verify without a gap from its first link."""
    await recovered(store)
    receipts = [receipt async for receipt in store.export_receipts(chain=store.chain)]
    found = verify_lines([receipt.line() for receipt in receipts])
    assert (found.bad, found.gaps) == (None, 0)
    assert not receipts or receipts[0].seq == 1
    return [receipt.unsealed().receipt_id for receipt in receipts]
