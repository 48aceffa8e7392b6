"""A fleet with known truth: what honest and lying nodes put on the wire, and what the coordinator's estimators make of it.

Time is simulated, so a day of jobs takes a second. The estimators are the real ones; only sockets and engines are not.
"""

from dataclasses import dataclass, field
from random import Random
from statistics import median

from brain_coord.fleet.health import Health
from brain_coord.fleet.node import Node
from brain_coord.fleet.reliability import Outcomes, reliability_score
from brain_coord.measure.credit import credit
from brain_coord.measure.rtt import RttEstimator
from brain_coord.measure.speed import StreamClock, StreamSample, count_tokens, decode_tok_s
from brain_coord.measure.window import MedianWindow
from brain_coord.probes.pace import COMPARED_SHARE, ProbeSettings, next_plan, shadow_share
from brain_coord.probes.verdict import Given, judge

Events = list[tuple[float, int]]
"""Arrival (seconds after dispatch, on the coordinator's clock) and tokens of each output event."""

BYTES_PER_TOKEN = 4.3


@dataclass(frozen=True)
class Engine:
    """The truth about one node."""

    tok_s: float
    rtt_ms: float
    jitter_ms: float = 3.0
    tokens_per_event: int = 1
    stalls: float = 0.05
    """Share of streams in which the engine stands still for a while."""
    prefill_ratio: float = 50.0
    """Prompt tokens read in the time of one written."""
    overhead_s: float = 0.02

    def written(self, random: Random, tokens: int, prompt_bytes: int) -> list[float]:
        """When the engine has written each token, seconds after dispatch, before the way back."""
        step_s = 1 / self.tok_s
        at = self.rtt_ms / 2000 + self.overhead_s * random.uniform(0.5, 2.0)
        at += step_s * (1 + prompt_bytes / BYTES_PER_TOKEN / self.prefill_ratio)
        stall_at = random.randrange(tokens) if random.random() < self.stalls else -1
        times = []
        for number in range(tokens):
            times.append(at)
            at += step_s * random.uniform(0.85, 1.15)
            if number == stall_at:
                at += random.uniform(0.3, 3.0)
        return times

    def stream(self, random: Random, tokens: int, prompt_bytes: int) -> Events:
        """What arrives from an honest node."""
        written = self.written(random, tokens, prompt_bytes)
        events: Events = []
        start = 0
        while start < tokens:
            size = min(tokens - start, random.randint(1, 2 * self.tokens_per_event - 1))
            events.append((self.arrival(random, written[start + size - 1]), size))
            start += size
        return in_order(events)

    def arrival(self, random: Random, sent: float) -> float:
        return sent + self.rtt_ms / 2000 + random.expovariate(1000 / self.jitter_ms)

    @property
    def true_rtt_ms(self) -> float:
        """The median round trip, with the jitter of its own that every line has."""
        random = Random(0)
        return 1000 * median(self.ping_s(random) for _ in range(2001))

    def ping_s(self, random: Random) -> float:
        spike_s = random.uniform(0.01, 0.08) if random.random() < 0.1 else 0.0
        return self.rtt_ms / 1000 + random.expovariate(1000 / (0.2 + 0.03 * self.rtt_ms)) + spike_s


def in_order(events: Events) -> Events:
    """A connection keeps order: what comes late holds up what follows."""
    latest, ordered = 0.0, []
    for at, tokens in events:
        latest = max(latest, at)
        ordered.append((latest, tokens))
    return ordered


class Honest:
    """Sends as it writes."""

    name = "honest"

    def send(self, engine: Engine, random: Random, tokens: int, prompt_bytes: int) -> Events:
        return engine.stream(random, tokens, prompt_bytes)

    def reports(self, tokens: int) -> int:
        return tokens

    def ping_s(self, engine: Engine, random: Random) -> float:
        return engine.ping_s(random)


class HoldsBack(Honest):
    """Keeps the whole answer until it is written, then bursts it out as if it had been fast."""

    name = "holds everything back, then bursts"

    def send(self, engine: Engine, random: Random, tokens: int, prompt_bytes: int) -> Events:
        honest = engine.stream(random, tokens, prompt_bytes)
        end = honest[-1][0]
        return [(end + 0.06 * number / len(honest), size) for number, (_, size) in enumerate(honest)]


class HoldsHalf(Honest):
    """Keeps the first half, sends it in one event, then goes on as it writes."""

    name = "holds the first half back"

    def send(self, engine: Engine, random: Random, tokens: int, prompt_bytes: int) -> Events:
        honest = engine.stream(random, tokens, prompt_bytes)
        middle = len(honest) // 2
        held = sum(size for _, size in honest[:middle])
        return [(honest[middle][0], held), *honest[middle:]]


class Instant(Honest):
    """Says one word at once and the rest as it is written."""

    name = "instant first word"

    def send(self, engine: Engine, random: Random, tokens: int, prompt_bytes: int) -> Events:
        honest = engine.stream(random, tokens, prompt_bytes)
        return [(engine.rtt_ms / 1000, 1), *honest[1:]]


class LatePongs(HoldsBack):
    """Bursts, and delays its pongs so that more of the wait looks like the network."""

    name = "bursts and delays pongs to 300 ms"

    def ping_s(self, engine: Engine, random: Random) -> float:
        return max(0.3, engine.ping_s(random))


class Inflates(Honest):
    """Reports four tokens for each it wrote."""

    name = "reports 4 times the tokens"

    def reports(self, tokens: int) -> int:
        return 4 * tokens


@dataclass
class Estimate:
    """What the coordinator knows of one node after some streams."""

    rtt: RttEstimator = field(default_factory=RttEstimator)
    window: MedianWindow = field(default_factory=MedianWindow)
    plain: MedianWindow = field(default_factory=MedianWindow)
    """By the plain formula, without the rule: what a lie would have gained."""
    tokens: int = 0
    text_bytes: int = 0


def observe(engine: Engine, node: Honest, random: Random, streams: int = 60, benchmark: bool = False) -> Estimate:
    """Pings and streams of one node, through the real estimators."""
    estimate = Estimate()
    for number in range(15):
        sent = 20.0 * number
        estimate.rtt.ping(number, sent)
        estimate.rtt.pong(number, sent + node.ping_s(engine, random))
    for number in range(streams):
        tokens = 96 if benchmark else min(1500, max(30, round(random.lognormvariate(5.3, 0.8))))
        if benchmark and engine.tok_s >= 96:
            tokens = 384 if engine.tok_s < 384 else 1536
        prompt_bytes = 170 if benchmark else random.randint(150, 2500)
        sample = sampled(node.send(engine, random, tokens, prompt_bytes), node.reports(tokens))
        plain = sample.tok_s
        if plain is not None:
            estimate.plain.add(plain, float(number))
        worth = credit(sample, prompt_bytes=prompt_bytes, rtt_ms=estimate.rtt.rtt_ms)
        if worth is None:
            continue
        if worth.at_most:
            estimate.window.at_most(worth.tok_s, float(number))
        else:
            estimate.window.add(worth.tok_s, float(number))
        estimate.tokens += sample.completion.tokens
        estimate.text_bytes += sample.clock.text_bytes
    return estimate


def sampled(events: Events, reported: int) -> StreamSample:
    """The stream as the gateway's clock sees it."""
    clock = StreamClock(0.0)
    for at, tokens in events:
        clock.output(at, max(1, round(tokens * BYTES_PER_TOKEN)))
    count = count_tokens(reported, clock)
    return StreamSample(clock, count, decode_tok_s(count, clock))


@dataclass
class Career:
    """A node's life over many jobs: canaries, comparisons, and whether it was ever found out."""

    wrong: float
    """Chance that one comparison goes against it (a third node agreeing with the other)."""
    canary_wrong: float
    random: Random
    settings: ProbeSettings = field(default_factory=ProbeSettings)
    greedy_share: float = 1.0
    """Share of jobs that are PUBLIC at temperature 0."""
    node: Node = field(default_factory=lambda: Node("N-" + "0" * 16, b""))
    health: Health = field(default_factory=Health)
    score: int = 70
    found_after: int | None = None
    _matched: int = 0
    _mismatched: int = 0
    _canaries: list[bool] = field(default_factory=list)

    def run(self, jobs: int, pause_s: float = 20.0) -> "Career":
        """Serve jobs until they are over, or until the node is out."""
        self.node.health = self.health
        now = 0.0
        plan = next_plan(self.node, self.settings, now, self.random)
        for number in range(1, jobs + 1):
            now += self.random.expovariate(1 / pause_s)
            self.node.load.ended = number
            self.node.done = min(200, number)
            self.health.job("completed", now)
            if self.random.random() < self.greedy_share * shadow_share(self.node, self.settings):
                self._compare(now)
            if plan.due(self.node, now):
                self._canary(now)
                plan = next_plan(self.node, self.settings, now, self.random)
            if self.health.suspect:
                self.found_after = number
                break
        self.score = reliability_score(
            Outcomes(
                completed=200,
                matched=self._matched,
                mismatched=self._mismatched,
                canary_passed=sum(self._canaries),
                canary_failed=len(self._canaries) - sum(self._canaries),
            )
        )
        return self

    def _canary(self, now: float) -> None:
        if self.health.doubted or self.random.random() < COMPARED_SHARE:
            self._compare(now)
            return
        passed = self.random.random() >= self.canary_wrong
        self._canaries.append(passed)
        self.health.canary(passed=passed, now=now)

    def _compare(self, now: float) -> None:
        agreed = self.random.random() >= self.wrong
        self._matched += agreed
        self._mismatched += not agreed
        self.health.comparison(agreed=agreed, now=now)


def settled_wrong(divergence: float, random: Random, trials: int = 4000) -> float:
    """How often the one who pays is an honest node, when each honest answer strays with a chance of its own."""
    lost = 0
    for _ in range(trials):
        strays = [random.random() < divergence for _ in range(3)]
        texts = [f"stray {number}" if stray else "common" for number, stray in enumerate(strays)]
        given = [Given(str(number), text) for number, text in enumerate(texts)]
        verdict = judge(given[:2], same=lambda one, other: one == other)
        if not verdict.decided:
            verdict = judge(given, same=lambda one, other: one == other)
        lost += "0" in verdict.mismatched
    return lost / trials
