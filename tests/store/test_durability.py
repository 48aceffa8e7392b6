"""Kill -9 at any moment: every receipt that was acknowledged is there, and the chain verifies."""

import asyncio
import contextlib
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from brain_coord.receipts.verify import verify_lines
from brain_coord.store.database import DATABASE_FILE
from brain_coord.store.errors import StoreError
from tests.store.conftest import IMPATIENT
from tests.support.coordinator import brain_coord
from tests.support.receipts import draft
from tests.support.stores import recovered

ROOT = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def flooding(data_dir, first, url=None):
    command = [sys.executable, "-m", "tests.support.receipt_flood", str(data_dir), str(first), *([url] if url else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process, count):
    """The ids of `count` acknowledged receipts and of those that came until the kill -9 took effect."""
    seen = [process.stdout.readline() for _ in range(count)]
    process.kill()
    seen += process.stdout.read().splitlines(keepends=True)
    assert seen[0], "the flood died by itself"
    return {line.strip().decode() for line in seen if line.endswith(b"\n")}


async def check(store, wanted):
    return len(await verified(store, wanted))


async def verified(store, wanted):
    """The lines of the whole chain, which verifies and holds everything that was acknowledged."""
    await recovered(store)
    lines, ids = [], set()
    async for receipt in store.export_receipts():
        lines.append(receipt.line())
        ids.add(receipt.unsealed().receipt_id)
    found = verify_lines(lines)
    assert (found.bad, found.gaps) == (None, 0)
    assert found.first[store.chain].seq == 1
    assert wanted - ids == set(), f"{len(wanted - ids)} acknowledged receipts are missing"
    return lines


async def test_of_10000_receipts_none_is_lost_by_five_kills_under_load_and_one_flipped_byte_is_named(
    open_store, data_dir, url
):
    kills, wanted = random.Random(7), set()
    for round_ in range(5):
        with flooding(data_dir, round_ * 1_000_000, url) as process:
            wanted |= acknowledged(process, 2000 + kills.randrange(500))
    assert len(wanted) >= 10_000
    store = await open_store(url)
    lines = await verified(store, wanted)
    assert len(lines) >= len(wanted)
    for number in (0, kills.randrange(len(lines)), len(lines) - 1):
        changed = bytearray(lines[number])
        changed[kills.randrange(len(changed))] ^= 1 << kills.randrange(8)
        # The links before it were seen to be good; checking them again would only take time.
        bad = verify_lines([*lines[max(0, number - 1) : number], bytes(changed), *lines[number + 1 : number + 2]]).bad
        assert bad is not None
        assert bad.line == min(number, 1) + 1


def _lose_wal(data_dir):
    (data_dir / f"{DATABASE_FILE}-wal").unlink()


def _cut_wal(data_dir):
    with (data_dir / f"{DATABASE_FILE}-wal").open("r+b") as file:
        file.truncate(40_000)


@pytest.mark.parametrize("damage", [_lose_wal, _cut_wal])
async def test_a_store_that_lost_its_newest_links_is_refused_and_says_which_and_what_to_do(
    open_store, data_dir, damage
):
    with flooding(data_dir, 0) as process:
        wanted = acknowledged(process, 30)
    kept = data_dir.parent / "kept"
    shutil.copytree(data_dir, kept)
    damage(data_dir)
    with pytest.raises(StoreError, match=r"links .* of receipt chain .* new-chain") as refused:
        await open_store()
    assert refused.value.code == "store_behind"
    shutil.copy(kept / f"{DATABASE_FILE}-wal", data_dir)
    for name in (DATABASE_FILE, f"{DATABASE_FILE}-shm"):
        shutil.copy(kept / name, data_dir)
    store = await open_store()
    assert await check(store, wanted) >= len(wanted)


async def test_a_store_that_lost_links_goes_on_under_a_new_chain(open_store, data_dir):
    with flooding(data_dir, 0) as process:
        acknowledged(process, 30)
    _lose_wal(data_dir)
    with pytest.raises(StoreError, match="links"):
        await open_store()
    (data_dir / "signing.key").unlink()
    done = await asyncio.to_thread(brain_coord, "keys", "new-chain", "--data-dir", str(data_dir))
    assert done.returncode == 0, done.stderr
    store = await open_store()
    await store.append_receipt(draft(1))
    lines = [receipt.line() async for receipt in store.export_receipts()]
    assert verify_lines(lines).bad is None


async def test_a_spool_that_was_cut_in_half_is_refused(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    with contextlib.closing(sqlite3.connect(data_dir / DATABASE_FILE, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        for number in range(4):
            await store.append_receipt(draft(number))
        await open_store.close()
    spool = data_dir / "spool" / "receipts.jsonl"
    with spool.open("r+b") as file:
        file.truncate(spool.stat().st_size // 2)
    with pytest.raises(StoreError, match=r"links \d to 4 ") as refused:
        await open_store(options=IMPATIENT)
    assert refused.value.code == "store_behind"


async def test_no_acknowledged_receipt_is_lost_by_kills_while_spooling(open_store, data_dir):
    await open_store(options=IMPATIENT)
    await open_store.close()
    wanted = set()
    for round_ in range(3):
        holder = sqlite3.connect(data_dir / DATABASE_FILE, isolation_level=None)
        with flooding(data_dir, round_ * 1_000_000) as process:
            wanted |= {process.stdout.readline().strip().decode()}
            holder.execute("BEGIN IMMEDIATE")
            wanted |= acknowledged(process, 1500)
        holder.close()
        assert (data_dir / "spool" / "receipts.jsonl").stat().st_size > 0
    store = await open_store(options=IMPATIENT)
    await check(store, wanted)


@pytest.mark.parametrize("torn", [b'{"body":{"id"', b"\0" * 4096, b'\n\n{"a":1}\n'])
async def test_a_torn_end_of_the_spool_was_never_acknowledged_and_is_dropped(open_store, data_dir, torn):
    store = await open_store(options=IMPATIENT)
    with contextlib.closing(sqlite3.connect(data_dir / DATABASE_FILE, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        await store.append_receipt(draft(1))
        await open_store.close()
    spool = data_dir / "spool" / "receipts.jsonl"
    with spool.open("ab") as file:
        file.write(torn)
    store = await open_store(options=IMPATIENT)
    await store.append_receipt(draft(2))
    assert await check(store, {draft(1).receipt_id, draft(2).receipt_id}) == 2
    assert spool.stat().st_size == 0
