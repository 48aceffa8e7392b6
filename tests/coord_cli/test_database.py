"""`brain-coord db`: checking and upgrading the schema, and a backup that can be restored."""

import asyncio
import json
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from brain_coord.receipts.history import trusted_keys
from brain_coord.receipts.signer import KEY_FILE, Signer
from brain_coord.receipts.verify import verify_lines
from brain_coord.store import signing
from brain_coord.store.session import session
from brain_coord.store.store import Store
from tests.support.coordinator import brain_coord
from tests.support.ports import free_port
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


async def check_goes_on(copy: Path, receipts: int) -> None:
    """What was restored signs the one chain on with its current key."""
    restored = await Store.open(copy)
    last = await restored.append_receipt(draft(1000))
    (history,) = await restored.signers()
    found = verify_lines([sealed.line() async for sealed in restored.export_receipts()], trusted_keys(history))
    await restored.close()
    assert (found.bad, found.receipts) == (None, receipts + 1)
    assert (restored.chain, last.signer) == (history["chain"], history["current"])


async def test_a_backup_in_the_middle_of_a_key_rotation_holds_the_key_that_its_store_goes_on_with(tmp_path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    store = await Store.open(live)
    await store.append_receipt(draft(1))
    await store.close()
    with session(live) as connection:
        entry = signing.rotate(connection, live, 1_750_000_100.0)
    assert Signer.load(live / KEY_FILE).key_id == entry.endorsed_by, "the file follows the store"
    assert command(live, "backup", str(copy)).returncode == 0
    assert Signer.load(copy / KEY_FILE).key_id == entry.key_id
    await check_goes_on(copy, 1)


async def test_backups_hold_a_key_and_a_store_that_belong_together_though_the_key_is_rotated_meanwhile(tmp_path):
    live, done = tmp_path / "live", threading.Event()
    store = await Store.open(live)
    await store.append_receipt(draft(1))
    await store.close()
    with closing(sqlite3.connect(live / "coord.db", isolation_level=None)) as filled:
        filled.execute("CREATE TABLE filling AS SELECT zeroblob(40000000)")

    def rotate_on() -> None:
        while not done.is_set():
            with session(live) as connection:
                signing.rotate(connection, live, time.time())
            signing.finish_rotation(live)

    rotating = asyncio.create_task(asyncio.to_thread(rotate_on))
    try:
        for number in range(4):
            said = await asyncio.to_thread(command, live, "backup", str(tmp_path / str(number)))
            assert said.returncode == 0, said.stderr
    finally:
        done.set()
        await rotating
    for number in range(4):
        await check_goes_on(tmp_path / str(number), 1)


def test_a_damaged_key_is_no_backup(tmp_path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    brain_coord("keys", "new-chain", "--data-dir", str(live))
    (live / "signing.key").write_text("x")
    failed = command(live, "backup", str(copy))
    assert failed.returncode == 78
    assert failed.stderr.startswith("error [signing_key_damaged]")
    assert not copy.exists()


@pytest.mark.parametrize("name", ["a#b", "a?b", "100%25"])
def test_a_backup_holds_what_the_store_does_whatever_its_folder_is_called(tmp_path, name):
    live, copy = tmp_path / name, tmp_path / "copy"
    brain_coord("keys", "new-chain", "--data-dir", str(live))
    assert command(live, "backup", str(copy)).returncode == 0
    listed = [brain_coord("keys", "list", "--json", "--data-dir", str(each)).stdout for each in (live, copy)]
    assert listed[0] == listed[1] != "[]\n"
    assert {path.name for path in tmp_path.iterdir()} == {name, "copy"}


def test_a_backup_ends_though_receipts_keep_coming(tmp_path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    command(live, "upgrade")
    brain_coord("keys", "new-chain", "--data-dir", str(live))
    done = threading.Event()

    def write_on():
        with closing(sqlite3.connect(live / "coord.db", isolation_level=None)) as store:
            while not done.is_set():
                store.execute("UPDATE receipts_so_far SET number = number + 1")

    with closing(sqlite3.connect(live / "coord.db", isolation_level=None)) as store:
        store.execute("CREATE TABLE filling AS SELECT zeroblob(40000000)")
        store.execute("CREATE TABLE receipts_so_far AS SELECT 0 AS number")
    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        assert command(live, "backup", str(copy)).returncode == 0
    finally:
        done.set()
        writer.join()
    with closing(sqlite3.connect(copy / "coord.db")) as copied:
        assert copied.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copied.execute("SELECT number FROM receipts_so_far").fetchone()[0] > 0


def test_a_backup_never_overwrites_and_leaves_nothing_half_done(tmp_path):
    assert command(tmp_path / "none", "backup", str(tmp_path / "copy")).returncode == 2
    command(tmp_path / "live", "upgrade")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").write_text("x")
    refused = command(tmp_path / "live", "backup", str(kept))
    assert refused.returncode == 2
    assert "not_empty" in refused.stderr
    assert (kept / "mine").read_text() == "x"
    failed = command(tmp_path / "live", "backup", str(tmp_path / "copy"))
    assert failed.returncode == 78
    assert failed.stderr.startswith("error [no_signing_key]")
    assert not (tmp_path / "copy").exists()
    command(tmp_path / "none", "upgrade")
    brain_coord("keys", "new-chain", "--data-dir", str(tmp_path / "none"))
    for place in (kept / "mine", Path("/proc/none")):
        wrong = command(tmp_path / "none", "backup", str(place))
        assert wrong.returncode in (2, 78)
        assert "Traceback" not in wrong.stderr
    assert (kept / "mine").read_text() == "x"


async def test_a_backup_that_is_older_than_the_last_receipt_goes_on_with_a_chain_of_its_own(tmp_path):
    live, back = tmp_path / "live", tmp_path / "back"
    store = await Store.open(live)
    await store.append_receipt(draft(1))
    await asyncio.to_thread(command, live, "backup", str(back))
    lost = await store.append_receipt(draft(2))
    await store.close()

    (back / "signing.key").unlink()
    begun = await asyncio.to_thread(brain_coord, "keys", "new-chain", "--data-dir", str(back))
    assert begun.returncode == 0, begun.stderr
    restored = await Store.open(back)
    again = await restored.append_receipt(draft(3))
    found = verify_lines([sealed.line() async for sealed in restored.export_receipts()])
    await restored.close()
    assert (lost.seq, again.seq) == (2, 1)
    assert (found.bad, found.receipts, len(found.last)) == (None, 2, 2)


@pytest.mark.parametrize("arguments", [("nodes",), ("key", "list"), ("db", "check"), ("serve", "--port", "0")])
def test_a_store_that_is_no_database_is_named_and_nothing_is_tried_again(tmp_path, arguments):
    (tmp_path / "coord.db").write_bytes(b"not a database, whatever it was" * 200)
    said = brain_coord(*arguments, "--data-dir", str(tmp_path))
    assert said.returncode == 78
    assert said.stderr.startswith(
        "error [database_damaged]: the store cannot be used: file is not a database\n  next: "
    )


@pytest.mark.parametrize("arguments", [("nodes",), ("serve", "--port", "0")])
def test_a_database_server_that_is_away_is_worth_another_try(tmp_path, arguments):
    """A service manager that starts both at once must not give the coordinator up."""
    away = {"BRAIN_COORD_DATABASE_URL": f"postgresql://nobody@127.0.0.1:{free_port()}/brain"}
    said = brain_coord(*arguments, "--data-dir", str(tmp_path), env=away)
    assert said.returncode == 75
    assert said.stderr.startswith("error [database_down]")


@pytest.mark.parametrize("arguments", [("key", "create"), ("nodes",), ("serve", "--port", "0")])
def test_every_command_takes_the_database_that_the_environment_names_in_a_file(tmp_path, arguments):
    """In the shipped containers the coordinator is told so: a key that lands elsewhere is worth nothing."""
    named = tmp_path / "url"
    named.write_text(f"postgresql://nobody@127.0.0.1:{free_port()}/brain")
    data = tmp_path / "data"
    environment = {"BRAIN_COORD_STORE_URL_FILE": str(named)}
    said = brain_coord(*arguments, "--data-dir", str(data), env=environment)
    assert said.returncode == 75, said.stderr
    assert "error [database_down]" in said.stderr
    assert not (data / "coord.db").exists()
    named.unlink()
    said = brain_coord(*arguments, "--data-dir", str(data), env=environment)
    assert said.returncode == 78
    assert "environment BRAIN_COORD_STORE_URL_FILE" in said.stderr


def test_a_data_folder_that_is_a_file_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    for words in ("nodes", "status", "targets"):
        said = brain_coord(words, "--data-dir", str(tmp_path / "file"))
        assert said.returncode in (75, 78)
        assert said.stderr.startswith("error [")


def test_a_store_of_a_later_version_is_named_and_left_alone(tmp_path):
    command(tmp_path, "upgrade")
    with sqlite3.connect(tmp_path / "coord.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    refused = command(tmp_path, "upgrade")
    assert refused.returncode == 78
    assert "store_newer" in refused.stderr
    assert command(tmp_path, "check").returncode == 1
