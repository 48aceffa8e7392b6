"""The node's side of the link as a state machine without I/O: frames and time in, frames and events out."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import orjson

from brain_node import __version__
from brain_node.contract.identity import Identity
from brain_node.contract.limits import (
    HEARTBEAT_S,
    LONGEST_HEARTBEAT_S,
    MISSED_HEARTBEATS,
    PING_S,
    PROTOCOL,
    SHORTEST_PERIOD_S,
    UNAUTHENTICATED_S,
)
from brain_node.contract.messages import (
    Challenge,
    Drain,
    Hello,
    Message,
    MessageError,
    Notice,
    Offer,
    OpenSlots,
    Ping,
    Pong,
    Refused,
    Report,
    Welcome,
    decode,
    encode,
)
from brain_node.exit_codes import CONFIG
from brain_node.link.faults import Fault, LinkError, fault_of_refusal

LATE_S: Final = 5.0
"""A check that comes this much too late says more about our own process (stopped, starved) than about the coordinator."""


class Phase(Enum):
    """Where a link stands."""

    CHALLENGE = "challenge"  # connected, waiting for the coordinator's challenge
    WELCOME = "welcome"  # hello sent, waiting for the answer
    OPEN = "open"  # the session runs


LinkEvent = Welcome | Notice | Drain | OpenSlots


@dataclass(frozen=True, slots=True)
class Step:
    """What one input asks of the shell."""

    send: list[str] = field(default_factory=list)
    events: list[LinkEvent] = field(default_factory=list)


def signed_hello(identity: Identity, challenge: Challenge, token: str | None, report: Report, offer: Offer) -> str:
    """The hello that answers a challenge, as the text of one frame."""
    hello = Hello(
        protocol=PROTOCOL,
        node_id=identity.node_id,
        public_key=base64.b64encode(identity.public_key).decode(),
        proof="",
        agent_version=__version__,
        token=token,
        report=report,
        offer=offer,
    )
    # Proved over the parsed JSON object, which is what the coordinator has in its hands when it verifies.
    body = orjson.loads(encode(hello))
    body["proof"] = identity.prove(challenge.coordinator_key, challenge.nonce, body)
    return orjson.dumps(body).decode()


class LinkProtocol:
    """One link from its first frame to its end.

    Args:
        identity: the node's key pair.
        token: a join token, sent in the hello and nowhere else.
        describe: the hardware report and the offer as they are at the moment of the hello.
        now: monotonic seconds.
    """

    def __init__(
        self, identity: Identity, token: str | None, describe: Callable[[], tuple[Report, Offer]], now: float
    ) -> None:
        self._identity = identity
        self._token = token
        self._describe = describe
        self.phase = Phase.CHALLENGE
        self.heartbeat_s = HEARTBEAT_S
        """The period of heartbeats in this session."""
        self._heard_at = now
        self._silence_s = UNAUTHENTICATED_S
        self._check_at = now + self._silence_s

    @property
    def check_at(self) -> float:
        """When `check` wants to be called, in monotonic seconds."""
        return self._check_at

    def check(self, now: float) -> None:
        """Look whether the coordinator has been silent for too long.

        Raises:
            LinkError: it has; the link is as good as gone.
        """
        if now - self._check_at > LATE_S:
            # We were the ones who slept: frames may be waiting to be read. Give them one more period.
            self._heard_at = max(self._heard_at, now - self._silence_s * (1 - 1 / MISSED_HEARTBEATS))
        silent_s = now - self._heard_at
        if silent_s >= self._silence_s:
            what = "did not answer the hello" if self.phase is not Phase.OPEN else "has been silent"
            raise LinkError(Fault("silent", f"the coordinator {what} for {silent_s:.0f} s"))
        self._check_at = self._heard_at + self._silence_s

    def received(self, frame: str | bytes, now: float) -> Step:
        """Take one frame from the coordinator.

        Raises:
            MessageError: the frame breaks the protocol.
            LinkError: the coordinator refused this node, or speaks another version.
        """
        self._heard_at = now
        if isinstance(frame, bytes):
            raise MessageError("a binary frame on the link")
        message = decode(frame)
        if message is None:
            return Step()
        if isinstance(message, Refused):
            raise LinkError(fault_of_refusal(message))
        if self.phase is Phase.OPEN:
            return self._open(message)
        if self.phase is Phase.CHALLENGE and isinstance(message, Challenge):
            return self._challenged(message)
        if self.phase is Phase.WELCOME and isinstance(message, Welcome):
            return self._welcomed(message, now)
        if isinstance(message, Notice):
            return Step(events=[message])
        raise MessageError(f"`{message.TYPE}` while waiting for `{self.phase.value}`")

    def _challenged(self, challenge: Challenge) -> Step:
        if challenge.protocol < PROTOCOL:
            raise LinkError(
                Fault(
                    "protocol_version",
                    f"the coordinator speaks protocol {challenge.protocol}, this node {PROTOCOL}",
                    "ask the coordinator's operator to update it",
                    exit_code=CONFIG,
                )
            )
        self.phase = Phase.WELCOME
        report, offer = self._describe()
        return Step(send=[signed_hello(self._identity, challenge, self._token, report, offer)])

    def _welcomed(self, welcome: Welcome, now: float) -> Step:
        self.phase = Phase.OPEN
        self.heartbeat_s = min(max(SHORTEST_PERIOD_S, welcome.heartbeat_s or HEARTBEAT_S), LONGEST_HEARTBEAT_S)
        self._silence_s = MISSED_HEARTBEATS * max(SHORTEST_PERIOD_S, welcome.ping_s or PING_S)
        self._check_at = now + self._silence_s
        return Step(events=[welcome])

    @staticmethod
    def _open(message: Message) -> Step:
        if isinstance(message, Ping):
            return Step(send=[encode(Pong(n=message.n))])
        if isinstance(message, Notice | Drain | OpenSlots):
            return Step(events=[message])
        raise MessageError(f"`{message.TYPE}` in an open session")
