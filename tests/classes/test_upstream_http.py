"""Proxies towards upstreams: the usual variables, and never one for loopback."""

import pytest

from brain_coord.classes.upstream_http import is_loopback, proxy_of


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
