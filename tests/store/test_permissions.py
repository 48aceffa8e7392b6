"""What the coordinator keeps is for its owner alone, from the first instant."""

import os
import stat
import threading

import pytest

from brain_coord.store import signing
from brain_coord.store.errors import StoreError
from brain_coord.store.session import session
from brain_coord.web.operator.secret import create_secret
from tests.support.receipts import draft


def modes(folder):
    return {path.relative_to(folder): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


@pytest.mark.case("F-03")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
async def test_every_file_is_0600_and_every_folder_0700_whatever_the_umask(open_store, data_dir, umask):
    before = os.umask(umask)
    loose, stop = [], threading.Event()

    def watch():  # the moment between making a file and closing it to others
        while not stop.is_set():
            for path in [data_dir, *data_dir.rglob("*")]:
                try:
                    if path.stat().st_mode & 0o077:
                        loose.append(path)
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        store = await open_store()
        await store.append_receipt(draft(1))
        await store.create_key("free")
    finally:
        stop.set()
        watcher.join()
        os.umask(before)
    assert loose == []
    found = modes(data_dir)
    assert {path.name for path in found} >= {"coord.db", "coord.db-wal", "signing.key", "coord.lock", "spool"}
    for path, mode in found.items():
        assert mode == (0o700 if (data_dir / path).is_dir() else 0o600), path


@pytest.mark.case("F-03")
async def test_files_that_have_become_loose_are_tightened(open_store, data_dir):
    await open_store()
    await open_store.close()
    data_dir.chmod(0o755)
    for path in data_dir.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    await open_store()
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    for path, mode in modes(data_dir).items():
        assert not mode & 0o077, path


def test_a_data_directory_that_is_a_file_is_an_error_with_the_way_out(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError) as error, session(tmp_path / "data"):
        pass
    assert error.value.code == "data_dir"
    assert "--data-dir" in error.value.next_step


def test_a_link_in_place_of_the_database_is_not_followed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "coord.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError), session(tmp_path / "data"):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o755, 0o1777])
async def test_a_folder_of_something_else_is_refused_and_stays_as_it_was(open_store, data_dir, mode):
    data_dir.mkdir(exist_ok=True)
    (data_dir / "somebody's").touch()
    data_dir.chmod(mode)
    with pytest.raises(StoreError, match="holds what is not a coordinator's") as refused:
        await open_store()
    assert refused.value.code == "data_dir"
    assert stat.S_IMODE(data_dir.stat().st_mode) == mode
    assert [path.name for path in data_dir.iterdir()] == ["somebody's"]


@pytest.mark.parametrize("name", [None, "config.toml", "browser-models", "lost+found"])
async def test_a_folder_that_is_empty_or_holds_our_configuration_is_tightened(open_store, data_dir, name):
    data_dir.mkdir(exist_ok=True)
    if name is not None:
        (data_dir / name).touch()
    data_dir.chmod(0o755)
    await open_store()
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


def test_what_root_makes_belongs_to_the_service_whose_folder_it_is(data_dir, monkeypatch):
    given = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda descriptor, user, group: given.append((os.fstat(descriptor).st_ino, user)))
    data_dir.mkdir(mode=0o700)
    with session(data_dir) as connection:
        signing.new_chain(connection, data_dir, 0.0)
    create_secret(data_dir, 0.0)
    owner = data_dir.stat().st_uid
    files = {data_dir / name for name in ("coord.db", "signing.key", "operator.json")}
    assert set(given) == {(path.stat().st_ino, owner) for path in files}
