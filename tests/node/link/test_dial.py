"""TLS, proxies and odd peers: what works, and what a failure says."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.asyncio import client as websockets_client
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from brain_node.exit_codes import CONFIG
from brain_node.link.dial import Dialer
from brain_node.link.faults import LinkError, fault_of, retry_after_s
from brain_node.link.url import parse_coordinator
from tests.support.certificates import PrivateCa
from tests.support.connect_proxy import ConnectProxy
from tests.support.eventually import eventually
from tests.support.node_doubles import Linked
from tests.support.raw_coordinator import RawCoordinator


@pytest.fixture
def ca(tmp_path):
    return PrivateCa(tmp_path)


async def fault_with(url: str, **options):
    """The fault of one link that cannot come up."""
    async with Linked(url, **options) as node:
        return (await node.until("waiting")).fault


@pytest.mark.case("F-06")
async def test_a_private_ca_is_trusted_when_its_file_is_named(ca):
    async with (
        RawCoordinator(tls=ca.server(), prefix="/brain") as coordinator,
        Linked(coordinator.url + "/", ca_file=ca.ca_file),
    ):
        await coordinator.link()
        await coordinator.slot()
    assert {path for path, _ in coordinator.requests} == {"/brain/node/v1/link", "/brain/node/v1/slot"}


@pytest.mark.case("F-06")
async def test_verification_is_on_and_names_the_option(ca):
    async with RawCoordinator(tls=ca.server()) as coordinator:
        fault = await fault_with(coordinator.url)
    assert fault.code == "tls_certificate"
    assert "--ca-file" in fault.next_step
    assert fault.slow
    assert "\n" not in str(fault)


@pytest.mark.case("F-06")
@pytest.mark.parametrize(
    ("server", "message", "step"),
    [
        ({"host": "other.example"}, "mismatch", "name"),
        ({"valid_days": (-9, -1)}, "expired", "renew"),
        ({"valid_days": (1, 9)}, "not yet valid", "clock"),
    ],
)
async def test_a_bad_certificate_says_what_is_bad_about_it(ca, server, message, step):
    async with RawCoordinator(tls=ca.server(**server)) as coordinator:
        fault = await fault_with(coordinator.url, ca_file=ca.ca_file)
    assert (fault.code, fault.slow) == ("tls_certificate", True)
    assert message in fault.message
    assert step in fault.next_step


@pytest.mark.case("F-06")
async def test_https_at_a_plain_port_is_explained():
    async with RawCoordinator() as coordinator:
        fault = await fault_with(coordinator.url.replace("http:", "https:"))
    assert fault.code == "tls_not_spoken"
    assert "http://" in fault.next_step


@pytest.mark.case("F-06")
async def test_http_at_a_tls_port_is_explained(ca):
    async with RawCoordinator(tls=ca.server()) as coordinator:
        fault = await fault_with(coordinator.url.replace("https:", "http:"))
    assert fault.code == "no_answer"
    assert "https://" in fault.next_step


@pytest.mark.case("F-06")
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_ends_the_agent(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LinkError) as caught:
        Dialer(parse_coordinator("https://c.example"), path)
    assert caught.value.fault.exit_code == CONFIG
    assert str(path) in str(caught.value)


@pytest.mark.case("F-06")
def test_a_ca_file_for_a_way_without_encryption_is_a_mistake_and_says_so(tmp_path):
    ca = PrivateCa(tmp_path)
    with pytest.raises(LinkError) as caught:
        Dialer(parse_coordinator("http://c.example"), ca.ca_file)
    fault = caught.value.fault
    assert (fault.code, fault.exit_code) == ("ca_file", CONFIG)
    assert "nothing is encrypted on the way to http://c.example" in fault.message
    assert "https://" in fault.next_step


@pytest.mark.case("F-06")
async def test_ipv6_works_with_brackets():
    async with RawCoordinator(host="::1") as coordinator, Linked(coordinator.url):
        await coordinator.link()
        await coordinator.slot()
        assert coordinator.requests[0][1]["Host"] == f"[::1]:{coordinator.port}"


@pytest.mark.case("F-01")
async def test_loopback_is_dialled_directly_whatever_the_proxy_variables_say():
    dead = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9") | {"NO_PROXY": ""}
    async with RawCoordinator() as coordinator, Linked(coordinator.url, environ=dead):
        await coordinator.link()
        await coordinator.slot()


@pytest.mark.case("F-01")
async def test_a_remote_coordinator_is_reached_through_a_connect_proxy(ca):
    async with (
        RawCoordinator(tls=ca.server("coordinator.example")) as coordinator,
        ConnectProxy(coordinator.port) as proxy,
        Linked("https://coordinator.example", ca_file=ca.ca_file, environ={"HTTPS_PROXY": proxy.url}),
    ):
        await coordinator.link()
        await coordinator.slot()
        assert set(proxy.asked) == {"CONNECT coordinator.example:443"}


@pytest.mark.case("F-01")
async def test_a_proxy_that_refuses_is_named_as_the_proxy():
    async with ConnectProxy(9, refuse=502) as proxy:
        fault = await fault_with("http://coordinator.example", environ={"HTTP_PROXY": proxy.url})
    assert (fault.code, fault.slow) == ("proxy_refused", True)
    assert "502" in fault.message


@pytest.mark.case("F-01")
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "http://no-such-host.invalid:3128"])
async def test_a_proxy_that_is_not_there_is_not_taken_for_the_coordinator(proxy):
    fault = await fault_with("https://coordinator.example", environ={"HTTPS_PROXY": proxy})
    assert fault.code == "proxy_unreachable"
    assert "proxy" in fault.message
    assert "NO_PROXY" in fault.next_step


@pytest.mark.case("F-01")
async def test_socks_without_its_package_is_one_plain_line(monkeypatch):
    async def without_package(*_, **__):
        raise ImportError("connecting through a SOCKS proxy requires python-socks")

    monkeypatch.setattr(websockets_client, "connect_socks_proxy", without_package)
    fault = await fault_with("https://coordinator.example", environ={"ALL_PROXY": "socks5://127.0.0.1:9"})
    assert fault.code == "socks_missing"
    assert "brain-node[socks]" in fault.next_step
    assert "\n" not in str(fault)


@pytest.mark.case("F-01")
async def test_a_variable_that_holds_no_proxy_is_named():
    fault = await fault_with("https://coordinator.example", environ={"HTTPS_PROXY": "gopher://p"})
    assert fault.code == "proxy_setting"
    assert "HTTPS_PROXY" in fault.message


async def test_a_web_server_that_is_no_coordinator_is_recognised():
    async with RawCoordinator() as coordinator:
        fault = await fault_with(coordinator.url + "/elsewhere")
    assert fault.code == "http_status"
    assert "path prefix" in fault.next_step


async def test_a_peer_that_talks_rubbish_is_recognised():
    async def rubbish(_, writer):
        writer.write(b"SSH-2.0-server\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(rubbish, "127.0.0.1", 0)
    fault = await fault_with(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()
    async with asyncio.timeout(20):  # uvloop waits for each connection: one that we kept would show here
        await server.wait_closed()
    assert fault.code == "no_answer"


async def test_a_name_that_does_not_exist_is_said_to_be_one():
    fault = await fault_with("http://no-such-host.invalid")
    assert fault.code == "dns"


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), ValueError("SECRET"), TimeoutError(), OSError(101, "x"), OSError("y")]
)
def test_every_error_has_a_fault_in_one_line(error):
    assert "\n" not in str(fault_of(error, 0.0))
    assert "SECRET" not in str(fault_of(error, 0.0))


@pytest.mark.case("F-06")
async def test_an_address_that_leads_nowhere_does_not_hide_the_one_that_works(monkeypatch):
    async with RawCoordinator() as coordinator:

        def resolve(host, port, *_, **__):
            assert host == "coordinator.example"
            tcp = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            # 2001:db8::/32 and 192.0.2.0/24 are for documentation: nobody answers there.
            nowhere = [
                (socket.AF_INET6, *tcp, ("2001:db8::1", port, 0, 0)),
                (socket.AF_INET, *tcp, ("192.0.2.1", port)),
            ]
            return [*nowhere, (socket.AF_INET, *tcp, ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        async with Linked(f"http://coordinator.example:{coordinator.port}"):
            await coordinator.link()
            await coordinator.slot()
            assert coordinator.requests[0][1]["Host"] == f"coordinator.example:{coordinator.port}"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("17", 17.0), (" 3 ", 3.0), ("²", None), ("soon", None), ("", None), ("Mon, 31 Dec 9999 23:59:59 -9999", None)],
)
def test_a_retry_after_that_cannot_be_read_ends_nothing(header, seconds):
    assert retry_after_s(header, 0.0) == seconds


def test_the_words_of_whoever_answers_stay_on_one_plain_line():
    close = Close(4000, "bye\x1b[2J\r\nroot@host:~#")
    fault = fault_of(ConnectionClosedError(close, None), 0.0)
    assert fault.message == "the coordinator closed the connection (4000: bye [2J  root@host:~#)"


async def test_a_name_server_that_does_not_answer_holds_one_thread_however_many_wait_for_it(monkeypatch):
    answer, asked = threading.Event(), []

    def getaddrinfo(host, *_, **__):
        asked.append(host)
        assert answer.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    dialer = Dialer(parse_coordinator("http://coordinator.example"), environ={})
    dials = [asyncio.create_task(dialer.slot("t", 1024)) for _ in range(8)]
    try:
        await eventually(lambda: asked)
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "supervision goes on") == "supervision goes on"
    finally:
        answer.set()
        ended = await asyncio.gather(*dials, return_exceptions=True)
    assert {fault_of(error, 0.0).code for error in ended} == {"dns"}
    assert asked == ["coordinator.example"]
    with pytest.raises(socket.gaierror):
        await dialer.link()
    assert len(asked) == 2, "the next one asks anew"
