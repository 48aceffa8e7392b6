"""Receipts a second through the writer, as a table: `python -m tests.support.receipt_rate [POSTGRES_URL]`."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from brain_coord.store.store import Store
from tests.support.receipts import draft

COUNT = 4000


async def measured(store, clients, first):
    times, numbers = [], iter(range(first, first + (COUNT if clients > 1 else COUNT // 8)))

    async def client():
        for number in numbers:
            began = time.perf_counter()
            await store.append_receipt(draft(number))
            times.append((time.perf_counter() - began) * 1e3)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    times.sort()
    return len(times) / wall_s, cpu_s / len(times) * 1e6, times[len(times) // 2], times[len(times) * 99 // 100]


async def main(url):
    with tempfile.TemporaryDirectory() as folder:
        store = await Store.open(Path(folder) / "data", url)
        sys.stdout.write("clients  receipts/s  CPU us  p50 ms  p99 ms\n")
        for position, clients in enumerate((1, 4, 16, 64, 256), 1):
            rate, cpu_us, p50_ms, p99_ms = await measured(store, clients, position * 1_000_000)
            sys.stdout.write(f"{clients:7}  {rate:10.0f}  {cpu_us:6.0f}  {p50_ms:6.2f}  {p99_ms:6.2f}\n")
        body = (await store.get_receipt(draft(1_000_000).receipt_id)).body
        await store.close()
        files = sum(path.stat().st_size for path in (Path(folder) / "data").glob("coord.db*"))
        if url is None:
            sys.stdout.write(
                f"a body of {len(body)} bytes takes {files / (4 * COUNT + COUNT // 8):.0f} bytes of disk\n"
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
