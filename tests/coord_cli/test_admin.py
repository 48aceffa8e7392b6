"""The administration socket: private, and in reach however deep the data directory lies."""

import asyncio
import stat

import pytest

from brain_coord.admin import SOCKET_NAME, AdminError, AdminServer, NotRunning, ask
from brain_coord.store.errors import StoreUnavailable


@pytest.mark.parametrize("depth", [0, 5])
async def test_commands_reach_the_coordinator_at_any_depth_and_only_its_owners(tmp_path, depth):
    folder = tmp_path.joinpath(*["a-long-name-of-a-folder"] * depth)
    folder.mkdir(parents=True, exist_ok=True)

    async def echo(request):
        return request["word"]

    server = AdminServer(folder / SOCKET_NAME, {"echo": echo})
    await server.start()
    try:
        assert await asyncio.to_thread(ask, folder, "echo", word="hello") == "hello"
        assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600
    finally:
        await server.stop()
    with pytest.raises(NotRunning):
        ask(folder, "echo", word="hello")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AdminError("no node N has joined"), "no node N has joined"),
        (
            StoreUnavailable("database_down", "the database is away", "Bring it back"),
            "the database is away. Bring it back",
        ),
        (KeyError("node_id"), "a fault of the coordinator; its log says more"),
    ],
)
async def test_whatever_goes_wrong_is_told_in_one_line(tmp_path, error, sentence):
    async def fails(_):
        raise error

    server = AdminServer(tmp_path / SOCKET_NAME, {"show": fails})
    await server.start()
    try:
        with pytest.raises(AdminError) as caught:
            await asyncio.to_thread(ask, tmp_path, "show")
    finally:
        await server.stop()
    assert str(caught.value) == sentence


def test_no_folder_is_no_coordinator(tmp_path):
    with pytest.raises(NotRunning):
        ask(tmp_path / "nothing", "echo")
