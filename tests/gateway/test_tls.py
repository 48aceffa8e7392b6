"""What a stranger may cost before TLS and behind it, shown on the true server."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.support.certificates import PrivateCa
from tests.support.configured import Configured
from tests.support.eventually import eventually
from tests.support.fake_openai import FakeOpenAi, silence

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
CLOSE = b"connection: close\r\n\r\n"

SETTINGS = """
[server]
tls_cert = "{pem}"
tls_key = "{pem}"
[limits]
connections = 12
head_s = 1
"""


@pytest.fixture(scope="module")
def trust(tmp_path_factory) -> tuple[ssl.SSLContext, str]:
    """What a client trusts, and the certificate with its key that it then believes."""
    ca = PrivateCa(tmp_path_factory.mktemp("ca"))
    ca.server()
    return ssl.create_default_context(cafile=ca.ca_file), str(ca.folder / "server.pem")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory, trust):
    with Configured(tmp_path_factory.mktemp("coord") / "data", SETTINGS.format(pem=trust[1])) as running:
        yield running


def plain(coordinator) -> socket.socket:
    return socket.create_connection(("127.0.0.1", coordinator.port), timeout=30)


def secure(coordinator, trust) -> ssl.SSLSocket:
    return trust[0].wrap_socket(plain(coordinator), server_hostname="127.0.0.1")


def ended(line: socket.socket) -> bool:
    """Wait for the end of a connection on which nothing comes."""
    with contextlib.suppress(ConnectionResetError):
        return line.recv(1) == b""
    return True


def files(coordinator) -> int:
    return len(list(Path(f"/proc/{coordinator.program.pid}/fd").iterdir()))


def answer(line: ssl.SSLSocket) -> bytes:
    got = b""
    while piece := line.recv(4096):
        got += piece
    return got


async def test_handshakes_that_never_end_take_no_more_places_than_connections_and_no_longer_than_a_head(
    coordinator, trust
):
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(plain(coordinator)) for _ in range(30)]
        for line in silent[:18]:
            assert ended(line), "the oldest goes for the next one"
        with secure(coordinator, trust) as client:
            client.sendall(GET + CLOSE)
            assert b" 200 " in answer(client)
        for line in silent[18:]:
            assert ended(line)


async def test_what_is_no_tls_ends_its_connection_and_no_other(coordinator, trust):
    with secure(coordinator, trust) as client:
        with plain(coordinator) as line:
            line.sendall(GET + b"\r\n")
            while line.recv(4096):  # the alert that it is no TLS
                pass
        client.sendall(GET + CLOSE)
        assert b" 200 " in answer(client)
    assert "Traceback" not in coordinator.program.output


async def test_a_client_that_never_says_goodbye_holds_no_file_open(coordinator, trust):
    with secure(coordinator, trust) as first:
        first.sendall(GET + CLOSE)
        answer(first)
    at_rest = files(coordinator)
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(secure(coordinator, trust)) for _ in range(10)]
        for line in lines:
            line.sendall(GET + CLOSE)
            assert b" 200 " in answer(line)
        await eventually(lambda: files(coordinator) <= at_rest)


async def test_a_newcomer_gets_the_place_of_the_one_that_is_idle_for_longest(coordinator, trust):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(secure(coordinator, trust)) for _ in range(12)]
        with secure(coordinator, trust) as newcomer:
            newcomer.sendall(GET + CLOSE)
            assert b" 200 " in answer(newcomer)
        assert ended(idle[0])


async def test_while_all_connections_work_one_more_is_turned_away_before_it_shakes_hands(coordinator, trust):
    async with FakeOpenAi("m", script=silence) as server:
        settings = SETTINGS.format(pem=trust[1])
        coordinator.reload(settings, server.toml("external", "busy", probe_s=0))
        async with coordinator.http(verify=trust[0]) as http:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            working = [asyncio.create_task(http.post("/v1/chat/completions", json=body)) for _ in range(12)]
            await eventually(lambda: server.running == 12)
            with plain(coordinator) as line:
                assert await asyncio.to_thread(ended, line)
            assert server.running == 12
            for task in working:
                task.cancel()
            await eventually(lambda: server.running == 0)
            assert (await http.get("/healthz")).status_code == 200


async def test_a_node_links_over_it(coordinator, trust):
    url = f"wss://127.0.0.1:{coordinator.port}/node/v1/link"
    async with connect(url, ssl=trust[0], proxy=None) as link:
        assert '"challenge"' in await link.recv()
