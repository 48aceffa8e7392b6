"""How every link begins, a node's and a tab's: the challenge, then a hello that holds up against it."""

import asyncio
import base64
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from brain_coord.link.orders import POLICY
from brain_coord.link.socket import LinkSocket
from brain_node.contract.identity import verify_hello
from brain_node.contract.limits import PROTOCOL, UNAUTHENTICATED_BYTES, UNAUTHENTICATED_S
from brain_node.contract.messages import Challenge, Hello, MessageError, Refused, decode


class Heard(NamedTuple):
    """A hello that was proved, and the claims in it that were of no use."""

    hello: Hello
    dropped: list[str]


class NotTaken(NamedTuple):
    """A hello that is not taken, and the id that it claims, if it got that far."""

    refused: Refused
    node_id: str | None = None


async def at_once() -> None:
    """Nobody has to wait for a turn."""


async def hear_hello(
    socket: LinkSocket,
    coordinator_key: str,
    *,
    other_version: Callable[[int], str],
    turn: Callable[[], Awaitable[None]] = at_once,
) -> Heard | NotTaken | None:
    """Challenge the other end and hear its hello.

    Args:
        socket: the accepted link.
        coordinator_key: what the other end has to prove itself against.
        other_version: the sentence for one that speaks another protocol version.
        turn: waited for before a hello is looked at, which takes a moment of work.

    Returns:
        The hello; why it is not taken, to be told; or `None` when the link is over: it left, said nothing in time, or too much.
    """
    nonce = base64.b64encode(secrets.token_bytes(24)).decode()
    await socket.send(
        Challenge(protocol=PROTOCOL, coordinator_key=coordinator_key, nonce=nonce, server_time=time.time())
    )
    try:
        async with asyncio.timeout(UNAUTHENTICATED_S):
            text = await socket.text()
    except TimeoutError:
        await socket.close(POLICY, "no hello in time")
        return None
    if text is None:
        return None
    await turn()
    if len(text) > UNAUTHENTICATED_BYTES:
        await socket.close(POLICY, f"a hello is at most {UNAUTHENTICATED_BYTES} bytes")
        return None
    dropped: list[str] = []
    try:
        hello = decode(text, dropped)
    except MessageError as error:
        spoken = _spoken(text)  # a hello of another version may well be none of this one
        return _not_taken("bad_hello", str(error)) if spoken is None else _not_taken("protocol", other_version(spoken))
    if not isinstance(hello, Hello):
        return _not_taken("bad_hello", "the first message must be a hello")
    if hello.protocol != PROTOCOL:
        return _not_taken("protocol", other_version(hello.protocol), hello.node_id)
    fault = verify_hello(orjson.loads(text), coordinator_key, nonce)
    return _not_taken("bad_proof", fault, hello.node_id) if fault is not None else Heard(hello, dropped)


def _spoken(text: str) -> int | None:
    """The other protocol version that a hello names, though it cannot be read."""
    try:
        hello = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    spoken = hello.get("protocol") if isinstance(hello, dict) and hello.get("type") == Hello.TYPE else None
    return spoken if type(spoken) is int and spoken != PROTOCOL else None


def _not_taken(code: str, message: str, node_id: str | None = None) -> NotTaken:
    return NotTaken(Refused(code=code, message=message, retry=False), node_id)
