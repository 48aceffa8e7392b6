"""A raw load generator: non-blocking sockets and one epoll, so that the client costs little beside what it measures.

    python -m scripts.bench.load < plan.json > figures.json

It also reads the processor time of the processes it is told to watch, at the very edges of its window.
"""

import json
import select
import socket
import sys
from dataclasses import asdict, dataclass, field
from time import monotonic_ns
from typing import Any, Final

from scripts.bench.procs import Usage, usage
from scripts.bench.wire import WORD, Ask, word_begun

RECV_BYTES: Final = 256 * 1024
NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send where, and for how long.

    Attributes:
        port: on 127.0.0.1.
        connections: each sends its next request when the answer to the last is whole.
        warm_s: from the first request to the window; in it everything opens and settles.
        window_s: the time that is measured.
        long: streams outlast the window; they are cut off at its end.
        slow_readers: more connections that ask for endless streams and read 2 KiB of them ten times a second.
        requests: stop early after this many in the window (0: never).
        watch: names of process groups, and their process ids.
    """

    port: int
    path: str
    headers: dict[str, str]
    model: str
    ask: Ask
    connections: int
    warm_s: float
    window_s: float
    long: bool = False
    slow_readers: int = 0
    requests: int = 0
    watch: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: dict[str, Any]) -> "Plan":
        """From JSON."""
        return cls(**{**data, "ask": Ask(**data["ask"])})


@dataclass(slots=True)
class Figures:
    """What the window showed; times in ms."""

    requests: int = 0
    events: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    first_output_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    event_delay_ms: list[float] = field(default_factory=list)
    window_s: float = 0.0
    open_streams: int = 0
    before: dict[str, Usage] = field(default_factory=dict)
    after: dict[str, Usage] = field(default_factory=dict)

    def failed(self, what: str) -> None:
        """Count one error."""
        self.errors[what] = self.errors.get(what, 0) + 1


class Connection:
    """One client connection, reused while the server keeps it open."""

    def __init__(self, bench: "Bench", request: bytes, expected: int, *, chunked: bool) -> None:
        self._bench = bench
        self._request = request
        self._expected = expected
        self._streamed = chunked
        self.socket: socket.socket | None = None
        self._out = b""
        self._began = 0
        self._reset()

    def _reset(self) -> None:
        self._first = 0
        self._events = 0
        self._got = 0
        self._length: int | None = None
        self._carry = b""
        self._status = b""

    def begin(self) -> None:
        """Send the next request."""
        self._reset()
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self._bench.plan.port))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.setblocking(False)
            self._bench.register(self)
        self._began = monotonic_ns()
        self._out = self._request
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes."""
        assert self.socket is not None
        while self._out:
            try:
                sent = self.socket.send(self._out)
            except BlockingIOError:
                self._bench.wants_write(self, yes=True)
                return
            except OSError:
                return  # the reading half tells why
            if sent == len(self._out):
                self._out = b""
            else:
                self._out = memoryview(self._out)[sent:]
        self._bench.wants_write(self, yes=False)

    def readable(self) -> None:
        """Take in what came."""
        assert self.socket is not None
        try:
            data = self.socket.recv(RECV_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(type(error).__name__)
            return
        if not data:
            self._broken("closed")
            return
        now = monotonic_ns()
        if not self._status:
            self._status = data[9:12]
            self._read_head(data)
        self._got += len(data)
        seen = self._carry + data if self._carry else data
        if count := seen.count(WORD):
            if not self._events:
                self._first = now
            self._events += count
            self._bench.saw_events(count, seen, now)
        self._carry = word_begun(data)
        if data.endswith(b"0\r\n\r\n") if self._length is None else self._got >= self._length:
            self._whole(now)

    def _read_head(self, data: bytes) -> None:
        head, _, _ = data.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self._length = len(head) + 4 + int(line[15:])

    def _whole(self, now: int) -> None:
        if self._status != b"200":
            self._bench.failed(f"status {self._status.decode('latin-1')}")
        elif self._events != self._expected:
            self._bench.failed(f"{self._events} events instead of {self._expected}")
        else:
            self._bench.completed(self._began, self._first, now)
        if self._bench.running:
            self.begin()

    def _broken(self, what: str) -> None:
        self._bench.failed(what)
        self.close()
        if self._bench.running:
            self.begin()

    def close(self) -> None:
        """Hang up."""
        if self.socket is not None:
            self._bench.forget(self)
            self.socket.close()
            self.socket = None


class SlowReader:
    """A client that asks for an endless stream and reads too little of it."""

    def __init__(self, plan: Plan) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", plan.port))
        ask = Ask(events=10_000_000, pad_bytes=1024)
        self.socket.sendall(ask.request(f"127.0.0.1:{plan.port}", plan.path, plan.headers, plan.model))
        self.socket.setblocking(False)

    def sip(self) -> None:
        """Read a little."""
        try:
            self.socket.recv(2048)
        except OSError:
            return


class Bench:
    """One run of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running = True
        self.figures = Figures()
        self._measuring = False
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._writing: set[int] = set()

    def register(self, connection: Connection) -> None:
        """A new socket."""
        assert connection.socket is not None
        self._connections[connection.socket.fileno()] = connection
        self._epoll.register(connection.socket.fileno(), select.EPOLLIN)

    def forget(self, connection: Connection) -> None:
        """A socket that ends."""
        assert connection.socket is not None
        number = connection.socket.fileno()
        self._connections.pop(number, None)
        self._writing.discard(number)
        self._epoll.unregister(number)

    def wants_write(self, connection: Connection, *, yes: bool) -> None:
        """Whether the socket is full."""
        assert connection.socket is not None
        number = connection.socket.fileno()
        if yes is not (number in self._writing):
            (self._writing.add if yes else self._writing.discard)(number)
            self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if yes else 0))

    def saw_events(self, count: int, data: bytes, now: int) -> None:
        """Output events came; the last one may carry the moment at which it was made."""
        if self._measuring:
            self.figures.events += count
            if self.plan.long:
                at = data.rfind(WORD) + len(WORD)
                stamp = data[at : data.find(b" ", at)]
                if stamp.isdigit():
                    self.figures.event_delay_ms.append((now - int(stamp)) / 1e6)

    def completed(self, began: int, first: int, now: int) -> None:
        """A whole, right answer."""
        if self._measuring and began >= self._window_began:
            self.figures.requests += 1
            self.figures.first_output_ms.append((first - began) / 1e6)
            self.figures.total_ms.append((now - began) / 1e6)

    def failed(self, what: str) -> None:
        """A wrong answer, or none; counted at any time, so that a warm-up full of errors cannot hide."""
        if self.running:
            self.figures.failed(what)
            if sum(self.figures.errors.values()) >= 500:
                self.running = False

    def run(self) -> Figures:
        """Warm up, measure, hang up."""
        plan, figures = self.plan, self.figures
        request = plan.ask.request(f"127.0.0.1:{plan.port}", plan.path, plan.headers, plan.model)
        slow = [SlowReader(plan) for _ in range(plan.slow_readers)]
        for _ in range(plan.connections):
            Connection(self, request, plan.ask.events, chunked=plan.ask.stream).begin()
        self._until(monotonic_ns() + int(plan.warm_s * NS), slow)
        figures.before = {name: usage(pids) for name, pids in plan.watch.items()}
        self._window_began = monotonic_ns()
        self._measuring = True
        self._until(self._window_began + int(plan.window_s * NS), slow)
        figures.window_s = (monotonic_ns() - self._window_began) / NS
        self._measuring = False
        figures.after = {name: usage(pids) for name, pids in plan.watch.items()}
        self.running = False
        figures.open_streams = len(self._connections)
        for connection in tuple(self._connections.values()):
            connection.close()
        for reader in slow:
            reader.socket.close()
        return figures

    def _until(self, end: int, slow: list[SlowReader]) -> None:
        sip_at = 0
        poll, find = self._epoll.poll, self._connections.get
        while self.running and (now := monotonic_ns()) < end:
            if slow and now >= sip_at:
                sip_at = now + NS // 10
                for reader in slow:
                    reader.sip()
            if self.plan.requests and self.figures.requests >= self.plan.requests:
                return
            for number, happened in poll(min(0.1, (end - now) / NS)):
                connection = find(number)
                if connection is None:
                    continue
                if happened & select.EPOLLOUT:
                    connection.flush()
                if happened & ~select.EPOLLOUT:
                    connection.readable()


def figures_to_json(figures: Figures) -> dict[str, Any]:
    """Sums and samples as JSON."""
    return asdict(figures)


if __name__ == "__main__":
    json.dump(figures_to_json(Bench(Plan.read(json.load(sys.stdin))).run()), sys.stdout)
