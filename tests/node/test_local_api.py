"""The local door: private, and in reach however deep its folder lies."""

import asyncio
import stat

import pytest

from brain_node.local_api.client import SOCKET_NAME, NoAgentError, ask
from brain_node.local_api.server import LocalApi


class Control:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def status(self):
        return {"running": True}

    def why(self):
        return {"notices": []}

    def metrics(self):
        return "brain_node_draining 0\n"

    def set_draining(self, draining):
        self.calls.append(("draining", draining))
        return True

    def stop(self, reason):
        self.calls.append(("stop", reason))


@pytest.fixture(params=["short", "long"])
async def door(request, tmp_path):
    folder = tmp_path if request.param == "short" else tmp_path / ("deep" * 30) / ("deeper" * 20)
    folder.mkdir(parents=True, exist_ok=True)
    control = Control()
    api = LocalApi(folder, control)
    await api.start()
    yield folder, control, api
    await api.stop()


async def test_questions_and_orders_arrive(door):
    folder, control, _ = door
    assert await asyncio.to_thread(ask, folder, "/status") == {"running": True}
    assert await asyncio.to_thread(ask, folder, "/why") == {"notices": []}
    await asyncio.to_thread(ask, folder, "/drain", "POST")
    await asyncio.to_thread(ask, folder, "/resume", "POST")
    await asyncio.to_thread(ask, folder, "/stop", "POST")
    assert control.calls == [("draining", True), ("draining", False), ("stop", "local API")]


async def test_orders_need_post_and_unknown_paths_are_errors(door):
    folder, control, _ = door
    for path, method in (("/drain", "GET"), ("/elsewhere", "GET")):
        with pytest.raises(OSError, match="HTTP 40"):
            await asyncio.to_thread(ask, folder, path, method)
    assert control.calls == []


@pytest.mark.case("F-03")
async def test_the_door_is_its_owners_only(door):
    folder, _, _ = door
    assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600


async def test_a_socket_file_left_behind_is_replaced_and_ours_is_removed(door):
    folder, control, api = door
    again = LocalApi(folder, control)
    await again.start()
    assert await asyncio.to_thread(ask, folder, "/status") == {"running": True}
    await again.stop()
    assert not (folder / SOCKET_NAME).exists()
    await api.stop()


@pytest.mark.parametrize("folder", ["nothing", "absent/folder"])
def test_without_an_agent_it_says_so(tmp_path, folder):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NoAgentError, match="no agent runs"):
        ask(tmp_path / folder, "/status")
