"""Addresses of coordinators as people type them."""

import pytest

from brain_node.link.url import UrlError, parse_coordinator

pytestmark = pytest.mark.case("F-06")


@pytest.mark.parametrize(
    ("typed", "link"),
    [
        ("http://[::1]:8080", "ws://[::1]:8080/node/v1/link"),
        ("::1", "ws://[::1]/node/v1/link"),
        ("[::1]:8080", "ws://[::1]:8080/node/v1/link"),
        ("fe80::5678", "wss://[fe80::5678]/node/v1/link"),
        ("fe80::5678%eth0", "wss://[fe80::5678]/node/v1/link"),
        ("http://[fe80::5678%25eth0]:80", "ws://[fe80::5678]/node/v1/link"),
        ("coord.example:8443", "wss://coord.example:8443/node/v1/link"),
        ("coord.example", "wss://coord.example/node/v1/link"),
        ("localhost:8080", "ws://localhost:8080/node/v1/link"),
        ("127.0.0.1:8080", "ws://127.0.0.1:8080/node/v1/link"),
        ("https://coord.example/brain/", "wss://coord.example/brain/node/v1/link"),
        ("https://coord.example:443", "wss://coord.example/node/v1/link"),
        ("wss://coord.example/a/b", "wss://coord.example/a/b/node/v1/link"),
        (" http://Coord.Example:80/ ", "ws://coord.example/node/v1/link"),
        ("https://bücher.example", "wss://xn--bcher-kva.example/node/v1/link"),
    ],
)
def test_the_link_address(typed, link):
    assert parse_coordinator(typed).link == link


def test_a_zone_stays_with_the_socket_and_leaves_the_url():
    url = parse_coordinator("fe80::5678%eth0")
    assert (url.host, url.netloc) == ("fe80::5678%eth0", "[fe80::5678]")


def test_the_base_is_shown_with_brackets():
    assert parse_coordinator("http://[::1]:8080/x/").base == "http://[::1]:8080/x"


@pytest.mark.parametrize(
    "typed",
    [
        *(
            "",
            "http://",
            "/path",
            "ftp://host",
            "http://host:port",
            "http://host:99999",
            "ho st",
            "http://[::1",
            "a:b:c",
        ),
        *("http://host:0", "https://coord..example", f"https://{'a' * 64}.example"),
    ],
)
def test_what_is_no_address_is_one_clear_error(typed):
    with pytest.raises(UrlError):
        parse_coordinator(typed)


@pytest.mark.case("D-10")
@pytest.mark.parametrize("typed", ["https://user:SECRET@host", "https://host/?token=SECRET", "https://host/#SECRET"])
def test_an_address_with_a_secret_in_it_is_refused_without_repeating_it(typed):
    with pytest.raises(UrlError) as caught:
        parse_coordinator(typed)
    assert "SECRET" not in str(caught.value)
    assert "--token-file" in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "loopback"),
    [
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("[::ffff:127.0.0.1]", True),
        ("10.0.0.1", False),
        ("x.example", False),
    ],
)
def test_loopback_is_known_by_its_address(typed, loopback):
    assert parse_coordinator(typed).loopback is loopback
