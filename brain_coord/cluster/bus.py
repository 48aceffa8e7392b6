"""The messages between coordinators, over Redis' publish and subscribe: in order, signed, and away when Redis is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final

import orjson
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from brain_coord.cluster.secret import ClusterSecret, NotOurs

log = structlog.get_logger("brain.cluster")

CALL_S: Final = 3.0
"""Longest wait for an answer of Redis."""

RETRY_S: Final = (0.2, 2.0)
"""First and longest pause before Redis is tried again."""

FAULTS: Final = (RedisError, OSError, TimeoutError)


def end_if_cancelled() -> None:
    """End the task if it was cancelled while it waited for Redis: redis-py may swallow that, or tell it as a fault.

    Raises:
        asyncio.CancelledError: it was.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Bus:
    """One coordinator's connection to Redis.

    Args:
        url: of Redis; may hold a password, so it is never shown.
        secret: signs what is sent, and tells what is ours.
        hear: takes each message of any coordinator, our own among them.
        came: awaited when the connection is there, again after each loss.
    """

    def __init__(
        self,
        url: str,
        secret: ClusterSecret,
        hear: Callable[[dict[str, Any]], None],
        came: Callable[[], Awaitable[None]],
    ) -> None:
        self.redis: Redis = Redis.from_url(
            url, socket_connect_timeout=CALL_S, socket_timeout=CALL_S, retry=Retry(NoBackoff(), 0)
        )
        self.channel = secret.prefix + "messages"
        self._secret = secret
        self._hear = hear
        self._came = came
        self._turn = asyncio.Lock()
        self.connected = False
        self.fault: str | None = "not connected yet"
        """Why Redis cannot be used now."""
        self.since = monotonic()
        """When `connected` last changed, monotonic seconds."""

    async def run(self) -> None:
        """Stay subscribed; runs for ever."""
        pause_s = RETRY_S[0]
        while True:
            try:
                async with self.redis.pubsub(ignore_subscribe_messages=True) as listener:
                    await listener.subscribe(self.channel)
                    self._is(connected=True, fault=None)
                    pause_s = RETRY_S[0]
                    await self._came()
                    while self.connected:
                        # The wait is shorter than the socket's limit: silence of others is no fault of Redis.
                        message = await listener.get_message(timeout=CALL_S / 2)
                        end_if_cancelled()
                        if message is not None:
                            self._take(message["data"])
            except FAULTS as error:
                self.lost(error)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_S[1], pause_s * 2)

    def _take(self, sealed: bytes) -> None:
        try:
            self._hear(orjson.loads(self._secret.unseal(sealed)))
        except NotOurs as error:
            log.warning("message refused", cause=str(error))
        except (KeyError, TypeError, ValueError):
            log.exception("message not understood; the other coordinator may be of another version")

    async def send(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Publish messages, in the order of the calls too; whether Redis has them.

        A beat that overtook what it counts among our words would tell the others that they have missed it.
        """
        if not self.connected:
            return False
        try:
            async with self._turn, self.redis.pipeline(transaction=False) as pipe:
                for message in messages:
                    pipe.publish(self.channel, self._secret.seal(orjson.dumps(message)))
                await pipe.execute()
        except FAULTS as error:
            self.lost(error)
            return False
        end_if_cancelled()
        return True

    def lost(self, error: Exception) -> None:
        """Redis did not do what it was asked to."""
        end_if_cancelled()
        self._is(connected=False, fault=f"{type(error).__name__}: {error}"[:200])

    def _is(self, *, connected: bool, fault: str | None) -> None:
        if connected is not self.connected:
            self.since = monotonic()
        self.connected, self.fault = connected, fault

    async def close(self) -> None:
        """Close the connections."""
        await self.redis.aclose()
