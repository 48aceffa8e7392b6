"""The limits of API keys over all coordinators: counted in Redis, and by each coordinator for itself while that is away."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

import structlog
from redis.exceptions import RedisError

from brain_coord.cluster.bus import FAULTS, Bus, end_if_cancelled
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.limits import KeyMeters, Meter, Permit

log = structlog.get_logger("brain.cluster")

KEPT_MS: Final = 120_000
"""An idle key is forgotten after this long: all its requests are back then."""

_OUR_COUNT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function ours(count)
  local version = tonumber(string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '0:0:0', '%d+:%d+:(%d+)'))
  if version < tonumber(ARGV[3]) then
    local ends = string.format('%.0f', now + tonumber(ARGV[4]))
    redis.call('HSET', KEYS[1], ARGV[1], count .. ':' .. ends .. ':' .. ARGV[3])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
"""
"""Keys: the hash of an API key. Arguments: our field in it, requests under way here, the number of this word (an older
one that comes later is not heard), how long it holds without a beat, how long an idle key is kept; times in ms."""

_COUNT: Final = _OUR_COUNT + "ours(ARGV[2])"

_ADMIT: Final = (
    _OUR_COUNT
    + """
local rate, most, here = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[2])
local left, at, elsewhere, refused = rate, now, 0, 1
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  local name, value = known[i], known[i + 1]
  if name == 'left' then left = tonumber(value)
  elseif name == 'at' then at = tonumber(value)
  elseif name ~= ARGV[1] then
    local count, ends = string.match(value, '(%d+):(%d+):%d+')
    if tonumber(ends) > now then elsewhere = elsewhere + tonumber(count) else redis.call('HDEL', KEYS[1], name) end
  end
end
left = math.min(rate, left + math.max(0, now - at) * rate / 60000)
left = math.floor(left * 1000000 + 0.5) / 1000000 -- as it is told and kept: both must agree on whether one is left
if left >= 1 and elsewhere + here <= most then
  left, refused = left - 1, 0
  ours(here)
end
redis.call('HSET', KEYS[1], 'left', string.format('%.6f', left), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {refused, string.format('%.6f', left), elsewhere}
"""
)
"""Further arguments: requests a minute, requests at a time. Answers whether it is refused, what is left of the minute,
and how many requests run elsewhere."""


class _Question(NamedTuple):
    """A request that waits to be counted: `answer` is what the script said, `None` where nobody did."""

    key: str
    arguments: list[Any]
    answer: asyncio.Future[list[Any] | None]


class ClusterMeters:
    """Implements the gateway's `SharedMeters`.

    What runs here is written as a number, never as a step: after any loss the next word puts it right, and the count of
    a coordinator that died runs out by itself. All that is to be asked and told goes to Redis together, once what went
    before has its answer: so many requests at a time need one connection, like few.
    """

    def __init__(self, bus: Bus, meters: KeyMeters, prefix: str, process: str, ttl_s: float) -> None:
        self._bus = bus
        self._meters = meters
        self._prefix = prefix + "key:"
        self._field = "on:" + process
        self._ttl_ms = round(ttl_s * 1000)
        self._admit = bus.redis.register_script(_ADMIT)
        self._count = bus.redis.register_script(_COUNT)
        self._words = count(1)
        self.fault: str | None = None
        """Why Redis, though it is there, does not count."""
        self._asked: list[_Question] = []
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    async def admit(self, caller: Caller, permit: Permit) -> None:
        """Count a request over all coordinators; here alone while Redis is away."""
        key, limits = caller.key_id or "", permit.limits
        permit.on_release = self._released(key)
        if not self._bus.connected:
            return
        here = permit.meter.running
        arguments = [*self._word(here), limits.requests_per_min, limits.concurrent]
        answer: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
        self._asked.append(_Question(key, arguments, answer))
        self._wake.set()
        said = await answer
        if said is None:
            return
        refused, left, elsewhere = said
        shared = Meter(float(left), 0.0, here - 1 + int(elsewhere))
        if int(refused):
            permit.meter.left += 1  # a refused request counts for nothing
            raise shared.refusal(limits)
        permit.lines = shared.lines(limits)

    def _word(self, here: int) -> list[Any]:
        return [self._field, here, next(self._words), self._ttl_ms, KEPT_MS]

    def _released(self, key: str) -> Callable[[], None]:
        def released() -> None:
            self._changed.add(key)
            self._wake.set()

        return released

    def recount(self) -> None:
        """Tell Redis of every key that has requests here; due once a beat."""
        self._changed |= self._meters.running_by_key().keys()
        if self._changed:
            self._wake.set()

    async def run(self) -> None:
        """Ask and tell Redis, everything that came meanwhile at once; runs for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, []
            changed, self._changed = self._changed, set()
            answers: list[Any] = [None] * len(asked)
            try:
                if self._bus.connected:
                    answers = await self._told(asked, changed) or answers
            finally:
                for question, said in zip(asked, answers, strict=False):
                    if not question.answer.done():
                        question.answer.set_result(said)

    async def _told(self, asked: list[_Question], changed: set[str]) -> list[Any]:
        """What Redis says to each command, `None` for one that it refused; nothing when it was lost."""
        running = self._meters.running_by_key()
        try:
            async with self._bus.redis.pipeline(transaction=False) as pipe:
                for key, arguments, _ in asked:
                    await self._admit(keys=[self._prefix + key], args=arguments, client=pipe)
                for key in changed:
                    await self._count(keys=[self._prefix + key], args=self._word(running.get(key, 0)), client=pipe)
                said = await pipe.execute(raise_on_error=False)
        except FAULTS as error:
            self._bus.lost(error)
            said = []
        end_if_cancelled()
        refused = next((each for each in said if isinstance(each, RedisError)), None)
        self._is(None if refused is None else f"{type(refused).__name__}: {refused}"[:200])
        return [None if isinstance(each, RedisError) else each for each in said]

    def _is(self, fault: str | None) -> None:
        """Redis answers, so its fault is not the bus': what the others say is still heard over a full memory."""
        if fault is not None and self.fault is None:
            log.warning("Redis does not count requests", cause=fault, limits="hold for this coordinator alone")
        elif fault is None and self.fault is not None:
            log.info("Redis counts requests again", limits="hold across the cluster")
        self.fault = fault
