"""Which proxy the link goes through, by the usual environment variables; never one for loopback."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from brain_node.link.url import CoordinatorUrl

_SCHEMES = ("http://", "https://", "socks4://", "socks4a://", "socks5://", "socks5h://")


class ProxyError(ValueError):
    """A proxy variable is set to something that is no proxy; the message names the variable, not its value."""


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The name as spelled and the value of a proxy variable; lower case wins, as in curl."""
    for spelling in (name, name.upper()):
        if value := environ.get(spelling, "").strip():
            return spelling, value
    return name, ""


def _exempt(url: CoordinatorUrl, no_proxy: str) -> bool:
    host = url.host.partition("%")[0].lower().rstrip(".")
    for raw in no_proxy.split(","):
        entry = raw.strip().lower()
        if entry == "*":
            return True
        entry, _, port = entry.rpartition(":") if entry.count(":") == 1 or "]:" in entry else (entry, "", "")
        if not entry or (port and port != str(url.port)):
            continue
        entry = entry.strip("[]")
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            name = entry.removeprefix("*").removeprefix(".")
            if host == name or host.endswith("." + name):
                return True
    return False


def _usable(value: str) -> bool:
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        return value.lower().startswith(_SCHEMES) and bool(host.encode("idna")) and parts.port != 0
    except ValueError:  # brackets, a port or a name that cannot be one
        return False


def proxy_for(url: CoordinatorUrl, environ: Mapping[str, str]) -> str | None:
    """The proxy for a coordinator, or `None` to connect directly.

    HTTPS_PROXY serves https addresses, HTTP_PROXY http ones, ALL_PROXY what they leave; NO_PROXY lists names, domains,
    addresses, networks, each with an optional port, or `*`.

    Raises:
        ProxyError: the variable that applies holds no proxy address.
    """
    if url.loopback or _exempt(url, _variable(environ, "no_proxy")[1]):
        return None
    for name in ("https_proxy" if url.secure else "http_proxy", "all_proxy"):
        spelling, value = _variable(environ, name)
        if not value:
            continue
        value = value if "://" in value else f"http://{value}"
        if not _usable(value):
            raise ProxyError(f"{spelling} does not hold a proxy address (http://host:port or socks5://host:port)")
        return value
    return None
