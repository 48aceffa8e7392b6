"""A fleet that links to whichever coordinator is there, and clients that ask whichever is there, as behind a load balancer."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterable

from tests.support.chaos import ChaosNode, Seen, judge
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawNode

DIAL_S = 0.3
"""About how long a node waits before it dials again."""


class Balancer:
    """The addresses that are up, and who is led to which."""

    def __init__(self, urls: dict[str, str], seed: int = 1) -> None:
        self.urls = urls
        self.up = set(urls)
        self.rng = random.Random(seed)

    def pick(self) -> str:
        """The name of one that is up."""
        return self.rng.choice(sorted(self.up))


class RoamingNode(ChaosNode):
    """A healthy node that links anew, anywhere, whenever its link ends."""

    def __init__(self, balancer: Balancer, number: int, slots: int = 2) -> None:
        super().__init__("http://127.0.0.1:1", number, 1)
        self.raw = RawNode("http://127.0.0.1:1", slots=slots, script=self.run, heartbeat_s=1.0)
        self.balancer = balancer
        self.at: str | None = None
        self.links = 0

    async def roam(self) -> None:
        """Stay linked; runs for ever."""
        while True:
            name = self.balancer.pick()
            self.raw.url = self.balancer.urls[name].replace("http", "ws", 1)
            with contextlib.suppress(OSError, TimeoutError, Exception):
                async with asyncio.timeout(20.0):
                    welcome = await self.raw.join()
                if welcome["type"] == "welcome":
                    self.at, self.links = name, self.links + 1
                    assert self.raw.link is not None
                    await self.raw.link.wait_closed()
            self.at = None
            await self.raw.leave()
            await asyncio.sleep(DIAL_S * (0.5 + self.balancer.rng.random()))


class Fleet:
    """So many of them."""

    def __init__(self, balancer: Balancer, count: int, slots: int = 2) -> None:
        self.nodes = [RoamingNode(balancer, number, slots) for number in range(count)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Fleet":
        self._tasks = [asyncio.create_task(node.roam()) for node in self.nodes]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(node.raw.leave() for node in self.nodes), return_exceptions=True)

    def where(self) -> Counter[str | None]:
        """How many nodes are linked to which coordinator."""
        return Counter(node.at for node in self.nodes)


class Load:
    """Clients that ask one request after the other until they are told to stop."""

    def __init__(self, balancer: Balancer, key: str, clients: int) -> None:
        self.seen: list[tuple[str, Seen]] = []
        """Whom each request asked, and what came of it."""
        self._balancer = balancer
        self._key = key
        self._clients = clients
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        rng = random.Random(number)
        while not self._stopping:
            name, seen = self._balancer.pick(), Seen(rng.choice(["read", "read", "whole"]))
            try:
                await self._ask(name, seen)
            except OSError:
                seen.ending = "cut"  # nobody listened there, or no longer
            self.seen.append((name, seen))
            if seen.ending == "cut":
                await asyncio.sleep(0.1)

    async def _ask(self, name: str, seen: Seen) -> None:
        body = {
            "model": "brain/mock",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": seen.kind == "read",
        }
        async with RawClient(self._balancer.urls[name], self._key) as http:
            await http.post("/v1/chat/completions", body)
            reply = await http.answer()
            judge(seen, reply)
            if seen.ending == "cut":
                seen.faults.clear()  # whether that may be is for the test to say
            elif seen.ending == "error":
                seen.text = str(reply.json["error"])

    def answers(self, of: Iterable[str] | None = None) -> int:
        """How many requests were answered, by these coordinators or by any."""
        return sum(seen.ending == "answer" for name, seen in self.seen if of is None or name in of)

    async def more(self, count: int, of: Iterable[str] | None = None, timeout_s: float = 120.0) -> None:
        """Until so many more were answered."""
        goal = self.answers(of) + count
        async with asyncio.timeout(timeout_s):
            while self.answers(of) < goal:  # noqa: ASYNC110 — many clients count, and none of them knows who waits
                await asyncio.sleep(0.05)

    def table(self) -> str:
        """What happened, for people."""
        endings = Counter((name, seen.ending) for name, seen in self.seen)
        errors = Counter(seen.text for _, seen in self.seen if seen.ending == "error")
        lines = [f"{name}  {ending:<14}{count}" for (name, ending), count in sorted(endings.items())]
        return "\n".join(lines + [f"   {count} × {text}" for text, count in errors.items()])
