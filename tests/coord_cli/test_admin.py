"""The administration socket: private, and in reach however deep the data directory lies."""

import asyncio
import stat

import pytest

from brain_coord.admin import SOCKET_NAME, AdminServer, NotRunning, ask


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


def test_no_folder_is_no_coordinator(tmp_path):
    with pytest.raises(NotRunning):
        ask(tmp_path / "nothing", "echo")
