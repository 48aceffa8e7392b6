"""`brain-coord db`: checking and upgrading the schema, and a backup that can be restored."""

import asyncio
import json
import sqlite3
import stat

from brain_coord.receipts.verify import verify_lines
from brain_coord.store.store import Store
from tests.support.coordinator import brain_coord
from tests.support.receipts import draft


def command(data_dir, *arguments):
    return brain_coord("db", *arguments, "--data-dir", str(data_dir))


def test_an_empty_folder_needs_an_upgrade_and_is_current_after_it(tmp_path):
    before = command(tmp_path, "check", "--json")
    assert before.returncode == 1
    assert json.loads(before.stdout)["found"] == "empty"
    assert json.loads(command(tmp_path, "upgrade", "--json").stdout)["upgraded"]
    assert command(tmp_path, "check").returncode == 0
    assert not json.loads(command(tmp_path, "upgrade", "--json").stdout)["upgraded"]


async def test_a_backup_of_a_running_store_goes_on_with_the_same_chain(tmp_path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    store = await Store.open(live)
    await asyncio.gather(*(store.append_receipt(draft(number + 1)) for number in range(20)))
    done = await asyncio.to_thread(command, live, "backup", str(copy))
    await store.close()
    assert done.returncode == 0, done.stderr
    assert {stat.S_IMODE(file.stat().st_mode) for file in copy.iterdir()} == {0o600}

    restored = await Store.open(copy)
    await restored.append_receipt(draft(21))
    lines = [sealed.line() async for sealed in restored.export_receipts()]
    await restored.close()
    found = verify_lines(lines)
    assert found.bad is None
    assert found.receipts == 21


def test_a_backup_never_overwrites_and_leaves_nothing_half_done(tmp_path):
    assert command(tmp_path / "none", "backup", str(tmp_path / "copy")).returncode == 2
    command(tmp_path / "live", "upgrade")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").write_text("x")
    refused = command(tmp_path / "live", "backup", str(kept))
    assert refused.returncode == 2
    assert "not empty" in refused.stderr
    assert (kept / "mine").read_text() == "x"
    failed = command(tmp_path / "live", "backup", str(tmp_path / "copy"))  # no signing key was made yet
    assert failed.returncode == 78
    assert not (tmp_path / "copy").exists()


def test_a_store_of_a_later_version_is_named_and_left_alone(tmp_path):
    command(tmp_path, "upgrade")
    with sqlite3.connect(tmp_path / "coord.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    refused = command(tmp_path, "upgrade")
    assert refused.returncode == 78
    assert "store_newer" in refused.stderr
    assert command(tmp_path, "check").returncode == 1
