"""The coordinator's address: what a person may type, and the websocket addresses made from it."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from brain_node.exit_codes import USAGE

LINK_PATH = "/node/v1/link"
SLOT_PATH = "/node/v1/slot"
_SECURE = {"https": True, "wss": True, "http": False, "ws": False}


class UrlError(ValueError):
    """The text is no address of a coordinator; the message says why and shows a good one."""

    code = "bad_url"
    next_step = "brain-node join https://coordinator.example"
    exit_code = USAGE

    @property
    def message(self) -> str:
        """Why it is none."""
        return str(self)


@dataclass(frozen=True, slots=True)
class CoordinatorUrl:
    """Where a coordinator listens."""

    secure: bool
    host: str
    """Name or address as the operating system takes it: without brackets, with a zone if there is one."""
    port: int
    prefix: str
    """Path under which the coordinator lives, without a slash at its end; empty at the root of the host."""

    @property
    def loopback(self) -> bool:
        """Whether the coordinator runs on this machine."""
        return is_loopback(self.host)

    @property
    def netloc(self) -> str:
        """Host and port as in a URL (RFC 3986, 3.2.2): brackets around IPv6, the default port left out."""
        host = self.host.partition("%")[0]
        host = f"[{host}]" if ":" in host else host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def base(self) -> str:
        """The base URL, as shown to people."""
        return f"http{'s' * self.secure}://{self.netloc}{self.prefix}"

    @property
    def link(self) -> str:
        """The websocket address of the link."""
        return f"ws{'s' * self.secure}://{self.netloc}{self.prefix}{LINK_PATH}"

    @property
    def slot(self) -> str:
        """The websocket address of slot connections."""
        return f"ws{'s' * self.secure}://{self.netloc}{self.prefix}{SLOT_PATH}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_ipv6(text: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(text), ipaddress.IPv6Address)
    except ValueError:
        return False


def parse_coordinator(text: str) -> CoordinatorUrl:
    """The coordinator meant by what a person typed.

    Without a scheme the link is encrypted, unless the host is this machine. A bare IPv6 literal is taken whole.

    Raises:
        UrlError: it is no such address, or holds what does not belong into it (a password, a query).
    """
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        rest = f"[{text}]" if _is_ipv6(text) else text
    elif scheme.lower() not in _SECURE:
        raise UrlError(f"`{scheme}` is no way to reach a coordinator: write https://host or http://host:port")
    if not rest or rest.startswith("/"):
        raise UrlError("the coordinator's address is empty: write https://host or http://host:port")
    if "@" in rest.partition("/")[0]:
        raise UrlError("an address must not hold a name or password: use --token-file for the join token")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = (parts.hostname or "").replace("%25", "%"), parts.port
        if port == 0:
            raise ValueError("nobody listens on port 0")
        if not _is_ipv6(host):
            host = host.encode("idna").decode()  # what name servers are asked for
    except UnicodeError:
        raise UrlError(f"`{host}` is no host: write https://host or http://host:port") from None
    except ValueError as error:
        raise UrlError(
            f"this is no address of a coordinator ({error}): write https://host or http://host:port"
        ) from None
    if parts.query or parts.fragment:
        raise UrlError("an address must not hold a query or a fragment: use --token-file for the join token")
    if not host or any(c.isspace() for c in rest) or (":" in host and not _is_ipv6(host)):
        raise UrlError(f"`{host}` is no host: write https://host or http://host:port, with [ ] around IPv6")
    secure = _SECURE[scheme.lower()] if separator else not is_loopback(host)
    default_port = 443 if secure else 80
    return CoordinatorUrl(secure, host, default_port if port is None else port, parts.path.rstrip("/"))
