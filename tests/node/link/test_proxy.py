"""Which proxy applies."""

import pytest

from brain_node.link.proxy import ProxyError, proxy_for
from brain_node.link.url import parse_coordinator

pytestmark = pytest.mark.case("F-01")

DEAD = {"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080"])
def test_loopback_never_goes_through_a_proxy(url):
    assert proxy_for(parse_coordinator(url), DEAD) is None


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://c.example", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://c.example", {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"}, "http://low:1"),
        ("https://c.example", {"HTTP_PROXY": "http://p:3128"}, None),
        ("http://c.example", {"HTTP_PROXY": "http://p:3128"}, "http://p:3128"),
        ("http://c.example", {"ALL_PROXY": "socks5://p:1080"}, "socks5://p:1080"),
        ("https://c.example", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://c.example", {"HTTPS_PROXY": "  ", "ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https://c.example", {}, None),
    ],
)
def test_the_variable_that_applies(url, environ, proxy):
    assert proxy_for(parse_coordinator(url), environ) == proxy


@pytest.mark.parametrize(
    ("url", "no_proxy"),
    [
        ("https://c.example", "c.example"),
        ("https://a.c.example", "other, .c.example"),
        ("https://a.c.example", "c.example"),
        ("https://c.example:8443", "c.example:8443"),
        ("https://C.example", "*"),
        ("https://10.1.2.3", "10.0.0.0/8"),
        ("https://[fd00::5]", "fd00::/8"),
        ("https://[fd00::5]:9", "[fd00::5]:9"),
    ],
)
def test_no_proxy_exempts(url, no_proxy):
    assert proxy_for(parse_coordinator(url), {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy}) is None


@pytest.mark.parametrize(
    ("url", "no_proxy"),
    [
        ("https://xc.example", "c.example"),
        ("https://c.example", "c.example:8443"),
        ("https://11.1.2.3", "10.0.0.0/8"),
        ("https://c.example", ",,"),
    ],
)
def test_no_proxy_exempts_nothing_else(url, no_proxy):
    assert proxy_for(parse_coordinator(url), {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy}) == "http://p:1"


@pytest.mark.case("D-10")
@pytest.mark.parametrize(
    "value",
    [
        "gopher://u:SECRET@p",
        *(
            "http://",
            "http://u:SECRET@[::1",
            "http://u:SECRET@p:99999",
            "http://u:SECRET@p:port",
            "http://u:SECRET@p..q:1",
        ),
    ],
)
def test_a_variable_that_is_no_proxy_is_named_without_its_value(value):
    with pytest.raises(ProxyError) as caught:
        proxy_for(parse_coordinator("https://c.example"), {"HTTPS_PROXY": value})
    assert "HTTPS_PROXY" in str(caught.value)
    assert "SECRET" not in str(caught.value)
