"""The coordinator and commands of the shell on one data directory at the same time."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from brain_coord.receipts.verify import verify_lines
from brain_coord.store.errors import StoreError
from brain_coord.store.session import session
from brain_coord.store.store import Store
from tests.support.receipts import draft

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys, typer
from brain_coord.cli.keys import key_app
from brain_coord.cli.signing import keys_app
app = typer.Typer()
app.add_typer(key_app, name="key")
app.add_typer(keys_app, name="keys")
app(sys.argv[1:])
"""


async def command(*arguments, url=None):
    """What a command of the shell prints as JSON."""
    environment = {**os.environ, **({"BRAIN_COORD_DATABASE_URL": url} if url else {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, "--json", stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=environment
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_a_key_made_in_the_shell_works_at_once_and_ends_soon_after_it_is_revoked(open_store, data_dir, url):
    store = await open_store(url)
    made = await command("key", "create", "--plan", "paid", "--data-dir", str(data_dir), url=url)
    found = await store.find_key(made["key"])
    assert (found.key_id, found.plan) == (made["id"], "paid")
    await command("key", "revoke", made["id"], "--data-dir", str(data_dir), url=url)
    store.keys._clock = lambda: 1e12  # more than the second for which a key is kept
    assert await store.find_key(made["key"]) is None


async def test_commands_and_a_busy_coordinator_do_not_hinder_each_other(open_store, data_dir):
    store = await open_store()
    done = asyncio.Event()

    async def serve():
        number = 0
        while not done.is_set() or number < 500:
            number += 1
            await store.append_receipt(draft(number))
        return number

    serving = asyncio.create_task(serve())
    made = await asyncio.gather(*(command("key", "create", "--data-dir", str(data_dir)) for _ in range(3)))
    done.set()
    count = await serving
    assert store.health.state == "ok"
    for key in made:
        assert await store.find_key(key["key"])
    found = verify_lines([receipt.line() async for receipt in store.export_receipts()])
    assert (found.bad, found.receipts) == (None, count)


async def test_a_long_read_in_the_shell_holds_up_no_write(open_store, data_dir):
    store = await open_store()
    await store.append_receipt(draft(1))
    with session(data_dir, write=False) as connection:
        connection.exec_driver_sql("SELECT count(*) FROM receipts")
        await store.append_receipt(draft(2))
    assert store.health.state == "ok"


async def test_a_second_coordinator_on_the_same_directory_is_refused(open_store, data_dir):
    await open_store()
    with pytest.raises(StoreError) as error:
        await Store.open(data_dir)
    assert error.value.code == "data_dir_in_use"
    reader = await Store.open(data_dir, receipts=False)
    await reader.close()


async def test_the_directory_is_free_again_after_a_failed_start(open_store, data_dir):
    await open_store()
    await open_store.close()
    key = (data_dir / "signing.key").read_text()
    (data_dir / "signing.key").write_text("damaged")
    with pytest.raises(Exception, match="damaged"):
        await Store.open(data_dir)
    (data_dir / "signing.key").write_text(key)
    await open_store()
