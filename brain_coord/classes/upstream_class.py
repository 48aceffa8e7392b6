"""A class made of upstreams: EXTERNAL_MODEL, and the operator's own servers in CLOUD_GPU."""

from collections.abc import Callable, Iterator, Sequence, Set
from time import monotonic
from typing import Final, Protocol

from brain_coord.classes.backend import OUTPUT_TOKENS, Prospect, Query
from brain_coord.classes.health import HealthBook, PassedOver
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.classes.upstream import Offer, Upstream, UpstreamSpec
from brain_coord.classes.upstream_ranking import Option, Ranked, rank_upstreams, wanted
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.inputs import ClassState, is_over
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass


class MakeTarget(Protocol):
    """Makes the target of one attempt."""

    def __call__(
        self, upstream: Upstream, offer: Offer, resource_class: ResourceClass, samples: ClassSamples
    ) -> Target:
        """One offer of an upstream as a target."""


class UpstreamClass:
    """The upstreams of one resource class."""

    def __init__(
        self,
        resource_class: ResourceClass,
        make_target: MakeTarget,
        *,
        health: HealthBook | None = None,
        samples: ClassSamples | None = None,
        on_capacity: Callable[[], None] = lambda: None,
    ) -> None:
        self.resource_class = resource_class
        self.samples = samples or ClassSamples()
        self.health = health or HealthBook()
        self.upstreams: dict[str, Upstream] = {}
        self._make_target = make_target
        self._on_capacity = on_capacity
        self._nothing = Prospect(ClassState(resource_class, supported=False, available=False), ranking=Ranked((), ()))

    def configure(self, specs: Sequence[UpstreamSpec]) -> None:
        """Take these upstreams from now on. What runs on others goes on; what was learnt of one that stays is kept."""
        before, self.upstreams = self.upstreams, {}
        for spec in specs:
            known = before.get(spec.name)
            if known is not None and known.spec.same_place(spec):
                known.spec = spec
                self.upstreams[spec.name] = known
            else:
                self.health.forget(spec.name)
                health = self.health.of(spec.name)
                self.upstreams[spec.name] = Upstream(spec, health, on_release=self._on_capacity)
        for name in before.keys() - self.upstreams.keys():
            self.health.forget(name)

    @property
    def configured(self) -> bool:
        """Whether there is any upstream, reachable or not."""
        return bool(self.upstreams)

    def models(self) -> list[str]:
        """Every model of every upstream, in the order of the configuration."""
        return list(dict.fromkeys(offer.model for offer in self.offers()))

    def offers(self) -> Iterator[Offer]:
        """The same with what each upstream takes for it."""
        return (offer for upstream in self.upstreams.values() for offer in upstream.spec.offers.values())

    def prospect(self, query: Query, output_tokens: int = OUTPUT_TOKENS, body: bytes = b"") -> Prospect:
        """The upstream that would take it, and what it estimates."""
        if not self.upstreams:
            return self._nothing
        now = monotonic()
        options = self._options(query, output_tokens, body, now)
        ranked = rank_upstreams(query, options)
        best = ranked.able[0] if ranked.able else None
        estimates = self.samples.estimates
        state = ClassState(
            resource_class=self.resource_class,
            supported=bool(options),
            available=best is not None,
            cost_usd=None if best is None else best.cost_usd,
            latency_ms=estimates.latency_ms,
            reliability=estimates.reliability,
            quality=None if best is None else best.offer.quality,
            confidence=estimates.confidence,
        )
        remarks = {option.name: option.out or option.last for option in options}
        return Prospect(
            state,
            wait_s=self._wait_s(query, ranked, now),
            passed_over=tuple(PassedOver(name, remark) for name, remark in remarks.items() if remark is not None),
            choice=None if best is None else f"{best.name} with {best.offer.served}",
            shortage=None if best is not None or not options else self._shortage(ranked),
            ranking=ranked,
        )

    def _options(self, query: Query, output_tokens: int, body: bytes, now: float) -> list[Option]:
        if query.node_request.node is not None:
            return []  # a pinned node is the only candidate
        offers = [
            (upstream, offer)
            for upstream in self.upstreams.values()
            if query.path in upstream.spec.routes
            for offer in wanted(query, upstream.spec.offers.values())
        ]
        prompt_tokens = tokens_of(body) if offers else 0
        costs = [offer.prices.cost_usd(query.path, prompt_tokens, output_tokens) for _, offer in offers]
        return [
            Option(
                name=upstream.spec.name,
                offer=offer,
                cost_usd=cost_usd,
                load=upstream.active / upstream.spec.slots,
                out=_barred(query, upstream.spec, offer, cost_usd) or upstream.health.out(now),
                last=upstream.health.last(now, (query.path, offer.served)),
            )
            for (upstream, offer), cost_usd in zip(offers, costs, strict=True)
        ]

    def _wait_s(self, query: Query, ranked: Ranked, now: float) -> float:
        """How long to wait for a slot, or for the end of a pause."""
        if ranked.able:
            return 0.0
        for option in ranked.unable:
            spec, health = self.upstreams[option.name].spec, self.upstreams[option.name].health
            if _barred(query, spec, option.offer, option.cost_usd) is None:
                ready = health.out_until(now)
                if ready is None or ready - now < query.wait_s:
                    return query.wait_s
        return 0.0

    def _shortage(self, ranked: Ranked) -> str:
        reasons = {option.name: option.out or "no free slot" for option in ranked.unable}
        return f"{self.resource_class}: " + "; ".join(f"{name} {reason}" for name, reason in reasons.items())

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> Target | None:
        """The best ranked upstream that can still take a request."""
        del query
        assert isinstance(prospect.ranking, Ranked)
        for option in prospect.ranking.able:
            upstream = self.upstreams.get(option.name)
            if upstream is None or option.name in passed or option.offer.model not in upstream.spec.offers:
                continue
            if upstream.free > 0 and upstream.health.out(monotonic()) is None:
                return self._make_target(upstream, option.offer, self.resource_class, self.samples)
        return None

    def full(self, prospect: Prospect) -> Set[str]:
        """Upstreams that lacked nothing but a free slot."""
        assert isinstance(prospect.ranking, Ranked)
        return {option.name for option in prospect.ranking.unable if option.out is None}

    def whole(
        self, query: Query, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """As it is: there are no nodes."""
        del query
        return lambda: decided


BYTES_PER_TOKEN: Final = 4
_BASE64: Final = b";base64,"


def tokens_of(body: bytes) -> int:
    """An estimate from the size of a request, without the images and sounds in it, which are no text of their length."""
    size = before = len(body)
    while (at := body.rfind(_BASE64, 0, before)) >= 0:  # from its end, as `rfind` takes a third of the time of `find`
        end = body.find(b'"', at, before)
        size -= (before if end < 0 else end) - at
        before = at
    return size // BYTES_PER_TOKEN + 1


def _barred(query: Query, spec: UpstreamSpec, offer: Offer, cost_usd: float | None) -> str | None:
    """What the client's own wishes hold against an upstream; they were made for nodes and bind it all the same."""
    request = query.node_request
    if request.require_region and request.region is not None and spec.region != request.region:
        return f"not in {request.region}"
    budget, price = request.max_ask_usd_per_1m, offer.prices.completion_usd_per_1m
    if budget is not None and price is not None and price > budget:
        return "price above budget"
    if is_over(cost_usd, query.max_cost_usd):
        return "costs more than max_cost_usd"
    return None
