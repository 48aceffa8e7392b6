"""Why a connection to the coordinator failed or ended, as one line with a next step."""

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyStatus,
    InvalidStatus,
    WebSocketException,
)
from websockets.exceptions import ProxyError as ProxyFailed

from brain_node.contract.limits import LINK_AGAIN
from brain_node.contract.messages import MessageError, Refused, printable
from brain_node.exit_codes import AUTH_REFUSED, CONFIG
from brain_node.link.proxy import ProxyError

_AUTH_CODES = {"bad_token", "token_required", "token_used", "token_expired", "banned"}
_TRY_AGAIN_LATER, _SERVICE_RESTART = 1013, 1012
_UNREADABLE = {1002: "no websocket frame", 1007: "text that is none", 1009: "more than a message may hold"}
"""Close codes with which our side ends a connection whose other side it cannot follow."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason for not being linked."""

    code: str
    message: str
    next_step: str = ""
    retry_after_s: float | None = None
    slow: bool = False
    """Time alone is not expected to mend it soon: retried, but not at the network's rate."""
    asked: bool = False
    """The coordinator asked for it, and nothing failed."""
    exit_code: int | None = None
    """Set when trying again cannot help: the agent ends with it."""

    def __post_init__(self) -> None:
        """It may hold words of whoever answered: a reason, an address, a name in a certificate."""
        object.__setattr__(self, "message", printable(self.message))

    def __str__(self) -> str:
        """Code, cause and next step in one line."""
        return f"[{self.code}] {self.message}" + (f". Next: {self.next_step}" if self.next_step else "")


class LinkError(Exception):
    """A fault raised by this package itself."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def fault_of_refusal(refused: Refused) -> Fault:
    """The fault in a coordinator's `refused`; only `retry: false` is for good."""
    advice = {
        "bad_token": "get a new join token (`brain-coord token create`) and pass it with --token-file",
        "token_required": "get a join token (`brain-coord token create`) and pass it with --token-file",
        "token_used": "get a new join token (`brain-coord token create`) and pass it with --token-file",
        "token_expired": "get a new join token (`brain-coord token create`) and pass it with --token-file",
        "banned": "ask the coordinator's operator",
        "duplicate_node": "another machine uses the same key file: move node.key away on one of them and join it anew",
        "id_taken": "another node has this id: move node.key away to join as a new node",
        "protocol": "update brain-node on this machine; if it is the newest, ask the coordinator's operator to update",
        "bad_proof": "check that nothing between this node and the coordinator changes messages",
    }.get(refused.code, "" if refused.retry else "ask the coordinator's operator")
    exit_code = None if refused.retry else AUTH_REFUSED if refused.code in _AUTH_CODES else CONFIG
    message = f"the coordinator refused this node: {refused.message}"
    return Fault(refused.code, message, advice, refused.retry_after_s, slow=refused.retry, exit_code=exit_code)


def retry_after_s(value: str | None, now_wall_s: float) -> float | None:
    """Seconds in a Retry-After header: a number or an HTTP date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_wall_s)
    except (ValueError, OverflowError):
        return None


def _tls(error: ssl.SSLError) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or error.reason or str(error)
        reason = reason.rstrip(".")
        if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
            step = "renew the coordinator's certificate, and check this machine's clock"
        elif error.verify_code == 9:  # X509_V_ERR_CERT_NOT_YET_VALID
            step = "check this machine's clock"
        elif error.verify_code in (62, 63, 64):  # host name, email, address mismatch
            step = "join with the name the certificate was made for"
        else:
            step = "if the coordinator uses a private CA, pass its certificate with --ca-file"
        return Fault("tls_certificate", f"the coordinator's certificate is not accepted: {reason}", step, slow=True)
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        step = "if it is meant to be reached without TLS, write http:// in front of its address"
        return Fault("tls_not_spoken", "the coordinator's port does not speak TLS", step, slow=True)
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return Fault("tls_failed", f"TLS with the coordinator failed: {reason}", "run `brain-node doctor`", slow=True)


def _status(error: InvalidStatus, now_wall_s: float) -> Fault:
    status = error.response.status_code
    later_s = retry_after_s(error.response.headers.get("Retry-After"), now_wall_s)
    if status in (301, 302, 303, 307, 308):
        target = error.response.headers.get("Location", "elsewhere")
        return Fault("redirected", f"the coordinator's address redirects to {target}", "join that address", slow=True)
    step = {404: "check the address and its path prefix", 401: "a proxy asks for a login: ask its operator"}.get(
        status, ""
    )
    code = "coordinator_busy" if status in (429, 503) else "http_status"
    return Fault(code, f"the coordinator's address answers with HTTP {status}", step, later_s, slow=True)


def _unreadable(what: str) -> Fault:
    step = "update brain-node, and check that nothing between this node and the coordinator changes messages"
    return Fault("protocol", f"the coordinator sent a message this version cannot read ({what})", step, slow=True)


def _closed(error: ConnectionClosed) -> Fault:
    close, sent = error.rcvd, error.sent
    if sent is not None and not error.rcvd_then_sent and (what := _UNREADABLE.get(sent.code)) is not None:
        return _unreadable(what)
    if close is None:
        return Fault("connection_lost", "the connection to the coordinator was lost")
    reason = f": {close.reason}" if close.reason else ""
    if close.code == _TRY_AGAIN_LATER:
        return Fault("coordinator_busy", f"the coordinator asks to try again later{reason}", slow=True)
    if close.code == _SERVICE_RESTART or close.code == 1001:
        return Fault("coordinator_stopping", f"the coordinator is stopping or restarting{reason}")
    if close.code == LINK_AGAIN:
        return Fault("link_again", f"the coordinator asked this node to link again{reason}", asked=True)
    if "superseded" in close.reason:
        step = "if this repeats, another machine uses the same key file: move node.key away on one of them"
        return Fault("superseded", f"another session of this node took over{reason}", step, slow=True)
    return Fault("closed", f"the coordinator closed the connection ({int(close.code)}{reason})")


def _os(error: OSError) -> Fault:
    if isinstance(error, socket.gaierror):
        step = "check the address, and this machine's DNS"
        return Fault("dns", f"the coordinator's name cannot be resolved: {error.strerror}", step)
    # asyncio joins the errors of several addresses into one without an errno.
    if (
        isinstance(error, ConnectionRefusedError)
        or error.errno == errno.ECONNREFUSED
        or "refused" in str(error).lower()
    ):
        return Fault("refused", "nothing listens at the coordinator's address", "check that the coordinator runs")
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return Fault("unreachable", "there is no route to the coordinator", "check this machine's network")
    return Fault("connection_lost", f"the connection to the coordinator failed: {error.strerror or error}")


def fault_of(error: BaseException, now_wall_s: float) -> Fault:
    """The fault in whatever connecting or talking raised; never more than one line, never a secret."""
    if isinstance(error, LinkError):
        return error.fault
    if isinstance(error, ProxyError):
        return Fault("proxy_setting", str(error), "correct or unset the variable", slow=True)
    if isinstance(error, ImportError):
        step = "pip install 'brain-node[socks]', or unset the proxy variable, or list the host in NO_PROXY"
        return Fault(
            "socks_missing", "the proxy variables ask for SOCKS, whose package is not installed", step, slow=True
        )
    if isinstance(error, ssl.SSLError):
        return _tls(error)
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return Fault("timeout", "the coordinator did not answer in time", "check the network and any firewall")
    if isinstance(error, InvalidProxyStatus):
        status = error.response.status_code
        return Fault("proxy_refused", f"the proxy answers with HTTP {status}", "check the proxy variables", slow=True)
    if isinstance(error, InvalidProxy):
        return Fault("proxy_setting", "a proxy variable holds no proxy address", "correct or unset it", slow=True)
    if isinstance(error, ProxyFailed):
        return Fault(
            "proxy_failed", "the proxy did not connect", "check the proxy variables, or list the host in NO_PROXY"
        )
    if isinstance(error, InvalidStatus):
        return _status(error, now_wall_s)
    if isinstance(error, ConnectionClosed):
        return _closed(error)
    if isinstance(error, MessageError):
        return _unreadable(str(error))
    if isinstance(error, InvalidMessage):
        step = "if the coordinator uses TLS, write https:// in front of its address"
        return Fault("no_answer", "what listens at the coordinator's address does not answer as a web server", step)
    if isinstance(error, InvalidHandshake):
        step = "check the address and its path prefix"
        return Fault("not_a_coordinator", "what answers there is no coordinator", step, slow=True)
    if isinstance(error, OSError):
        return _os(error)
    if isinstance(error, WebSocketException):
        return Fault("protocol", f"the websocket broke: {type(error).__name__}", slow=True)
    return Fault("unexpected", f"unexpected {type(error).__name__} on the link", "please report this with the log")
