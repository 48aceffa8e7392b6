"""Proxies towards upstreams: the usual variables, and never one for loopback."""

import asyncio
import ssl

import pytest

from brain_coord.classes.upstream import UpstreamSpec
from brain_coord.classes.upstream_http import UnsupportedProxy, UpstreamHttp, is_loopback, proxy_of
from brain_coord.classes.upstream_target import fault_of
from tests.support.certificates import PrivateCa
from tests.support.connect_proxy import ConnectProxy


@pytest.fixture
def environment(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch.setenv


@pytest.mark.case("F-01")
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:9/v1", "http://127.9.9.9/"]
)
def test_loopback_never_uses_a_proxy(environment, url):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        environment(name, "http://proxy:3128")
    assert is_loopback(url)
    assert proxy_of(url) is None


def test_a_remote_upstream_uses_the_proxy_of_its_scheme(environment):
    environment("HTTPS_PROXY", "http://proxy:3128")
    assert proxy_of("https://api.example.com/v1") == "http://proxy:3128"
    assert proxy_of("http://api.example.com/v1") is None
    environment("ALL_PROXY", "other:3128")
    assert proxy_of("http://api.example.com/v1") == "http://other:3128"
    environment("NO_PROXY", "example.com")
    assert proxy_of("https://api.example.com/v1") is None


FAR = "https://far.example/v1/models"


def far(trust: ssl.SSLContext | None = None) -> UpstreamSpec:
    return UpstreamSpec("far", "https://far.example/v1", {}, frozenset(), trust=trust)


@pytest.mark.case("F-01")
async def test_an_upstream_is_reached_through_a_proxy_that_tunnels(environment, tmp_path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    ca, http = PrivateCa(tmp_path), UpstreamHttp()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ca.server("far.example"))
    async with server, ConnectProxy(server.sockets[0].getsockname()[1]) as proxy:
        environment("HTTPS_PROXY", proxy.url)
        response = await http.request("GET", FAR, far(ssl.create_default_context(cafile=ca.ca_file)), {})
        assert await response.read() == b"ok"
        assert proxy.asked == ["CONNECT far.example:443"]
        await http.close()


@pytest.mark.case("F-01")
async def test_a_socks_proxy_is_told_and_not_gone_around(environment):
    environment("ALL_PROXY", "socks5://127.0.0.1:9")
    http = UpstreamHttp()
    with pytest.raises(UnsupportedProxy) as refused:
        await http.request("GET", FAR, far(), {})
    await http.close()
    fault = fault_of(refused.value, sent=False)
    assert (fault.cause, fault.ran) == ("proxy", False)
    assert "not an HTTP proxy" in str(fault)
