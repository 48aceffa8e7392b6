"""Looking at the way to the coordinator: address, proxy, TLS, what answers there, and the clock."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from brain_node.agent.doctor.finding import Finding, fail, ok, warn
from brain_node.contract.limits import PROTOCOL
from brain_node.contract.messages import Challenge, MessageError, decode
from brain_node.exit_codes import CONFIG, TEMPORARY
from brain_node.link.dial import Dialer
from brain_node.link.faults import Fault, LinkError, fault_of
from brain_node.link.proxy import ProxyError, proxy_for
from brain_node.link.url import CoordinatorUrl, UrlError, parse_coordinator
from brain_node.settings import Settings

SKEW_S: Final = 120.0
"""Clock difference worth a word; nothing of the protocol depends on it."""
CHALLENGE_S: Final = 10.0


async def coordinator(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Everything between this node and its coordinator, without joining."""
    if settings.url is None:
        return [warn("coordinator", "no coordinator is named", "brain-node doctor URL, or set BRAIN_NODE_URL")]
    try:
        url = parse_coordinator(settings.url)
    except UrlError as error:
        return [fail("coordinator", error.message, error.next_step, error.exit_code)]
    findings = [_proxy(url, environ)]
    if not url.secure and not url.loopback:
        step = "use https, at least where a join token is sent"
        findings.append(warn("tls", f"{url.base} is not encrypted", step))
    try:
        challenge, took_s = await _challenge(Dialer(url, settings.ca_file, environ))
    except LinkError as error:
        return [*findings, _fault(error.fault)]
    except Exception as error:
        return [*findings, _fault(fault_of(error, time.time()))]
    if url.secure:
        findings.append(ok("tls", "the coordinator's certificate is accepted"))
    if challenge.protocol != PROTOCOL:
        step = "install a matching version of brain-node"
        message = f"it speaks protocol {challenge.protocol}, this node {PROTOCOL}"
        return [*findings, fail("coordinator", message, step, CONFIG)]
    findings.append(ok("coordinator", f"{url.base} answers (connected in {1000 * took_s:.0f} ms)"))
    return [*findings, *_clock(challenge)]


def _proxy(url: CoordinatorUrl, environ: Mapping[str, str]) -> Finding:
    try:
        proxy = proxy_for(url, environ)
    except ProxyError as error:
        return fail("proxy", str(error), "correct or unset the variable", CONFIG)
    if proxy is None:
        return ok("proxy", "none is used" + (" (loopback never is)" if url.loopback else ""))
    # Without its user information, which may hold a password.
    scheme, _, rest = proxy.partition("://")
    return ok("proxy", f"{scheme}://{rest.rpartition('@')[2]}")


async def _challenge(dialer: Dialer) -> tuple[Challenge, float]:
    began = time.monotonic()
    socket = await dialer.link()
    took_s = time.monotonic() - began
    try:
        async with asyncio.timeout(CHALLENGE_S):
            message = decode(await socket.recv())
    finally:
        await socket.close()
    if not isinstance(message, Challenge):
        raise MessageError("the first message is no challenge")
    return message, took_s


def _fault(fault: Fault) -> Finding:
    check = (
        "tls"
        if fault.code.startswith("tls")
        else "proxy"
        if fault.code.startswith(("proxy", "socks"))
        else "coordinator"
    )
    return fail(check, fault.message, fault.next_step or "check the coordinator", fault.exit_code or TEMPORARY)


def _clock(challenge: Challenge) -> list[Finding]:
    if challenge.server_time is None:
        return []
    skew_s = time.time() - challenge.server_time
    if abs(skew_s) <= SKEW_S:
        return [ok("clock", f"within {max(1.0, abs(skew_s)):.0f} s of the coordinator's")]
    step = "let the system keep the time (timedatectl set-ntp true); certificates depend on it, the link does not"
    return [warn("clock", f"this machine is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}", step)]
