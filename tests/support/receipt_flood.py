"""A coordinator's store under load, as a process to be killed: `python -m tests.support.receipt_flood DIR FIRST [URL]`.

Sixteen requests at a time; the id of each receipt is written to stdout once its future has resolved, and not before.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from brain_coord.store.store import Store, StoreOptions
from brain_coord.store.writer import WriterLimits
from tests.support.receipts import draft

OPTIONS = StoreOptions(timeout_s=0.2, writer=WriterLimits(retry_s=0.05, retry_max_s=0.1))


async def flood(data_dir, first, url):
    store = await Store.open(data_dir, url, options=OPTIONS)
    numbers = itertools.count(first)

    async def client():
        for number in numbers:
            sealed = await store.append_receipt(draft(number))
            os.write(1, sealed.unsealed().receipt_id.encode() + b"\n")

    await asyncio.gather(*(client() for _ in range(16)))


if __name__ == "__main__":
    asyncio.run(flood(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
