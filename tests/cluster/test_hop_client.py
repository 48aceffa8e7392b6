"""The sending side of a hop: it goes where the coordinator's address says, and nowhere else."""

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from brain_coord.cluster.hop_client import EVENT_PATH, SLOT_PATH, HopClient
from brain_coord.cluster.secret import ClusterSecret
from brain_coord.cluster.view import Peer


async def test_nothing_at_a_coordinators_address_can_send_a_hop_elsewhere():
    reached = []

    async def elsewhere(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", elsewhere)
    async with TestServer(app) as other:

        async def redirect(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(str(other.make_url(request.path)))

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", redirect)
        async with TestServer(app) as there:
            hop = HopClient("a", ClusterSecret("s" * 40), None)
            peer = Peer("b", "1", str(there.make_url("")).rstrip("/"), 0.0)
            try:
                assert not await hop.answers(peer)
                assert (await hop.post(peer, EVENT_PATH, b"{}", {})).status == 307
                with pytest.raises(aiohttp.ClientError):
                    await hop.socket(peer, SLOT_PATH, {"ticket": "t"})
            finally:
                await hop.close()
    assert reached == []
