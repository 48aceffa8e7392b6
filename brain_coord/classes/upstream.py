"""One upstream that the operator configured: where it is, what it serves at what price, and how it is doing."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices

Auth = Literal["bearer", "x-api-key"]


@dataclass(frozen=True, slots=True)
class Offer:
    """One model of an upstream.

    Attributes:
        model: as clients name it here.
        served: as the upstream calls it.
        prices: of this model.
        quality: the operator's quality tier, 0 to 1; `None` when not set.
    """

    model: str
    served: str
    prices: Prices = field(default_factory=Prices)
    quality: float | None = None


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One upstream as configured.

    Attributes:
        name: the operator's name for it, shown in answers and receipts.
        base_url: what stands before `/chat/completions`.
        offers: its models by the names that clients use, in the order of the file.
        routes: the API routes that it serves.
        slots: most requests that run on it at a time.
        api_key: never shown.
        auth: how it is sent: `bearer` as OpenAI's services want it, `x-api-key` as Anthropic's do.
        region: where it stands, as requests name regions.
        probe_s: how often it is asked for its models while idle; 0 for never.
        trust: for a private CA; `None` trusts what the system trusts.
    """

    name: str
    base_url: str
    offers: Mapping[str, Offer]
    routes: frozenset[str]
    slots: int = 64
    api_key: str | None = field(default=None, repr=False)
    auth: Auth = "bearer"
    region: str | None = None
    probe_s: float = 30.0
    trust: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def url_of(self, route: str) -> str:
        """The address of one of our routes at the upstream."""
        return self.base_url + route.removeprefix("/v1")

    def same_place(self, other: "UpstreamSpec") -> bool:
        """Whether what was learnt of one holds for the other."""
        return (self.base_url, self.api_key) == (other.base_url, other.api_key)


@dataclass(slots=True, eq=False)
class Upstream:
    """One upstream while the coordinator runs.

    Attributes:
        spec: as configured, replaced by a reload.
        health: what traffic and probes say of it.
        active: requests that run on it now.
        last_ok_at: when traffic or a probe last went well, monotonic seconds.
        listed: the model names in its last list of models, `None` before one was read.
        last_fault: of the last probe, in words.
        on_release: called when a request on it is over.
    """

    spec: UpstreamSpec
    health: TargetHealth
    active: int = 0
    last_ok_at: float | None = None
    listed: frozenset[str] | None = None
    last_fault: str | None = None
    on_release: Callable[[], None] = lambda: None

    @property
    def free(self) -> int:
        """Requests that it could take now."""
        return max(0, self.spec.slots - self.active)

    def reserve(self) -> None:
        """A request begins on it; counted before anything is awaited, so that two cannot take one slot."""
        self.active += 1

    def release(self) -> None:
        """A request on it is over, however it ended. Exactly one call for each `reserve`."""
        assert self.active > 0, "released more requests than were reserved"
        self.active -= 1
        self.on_release()

    def view(self, now: float) -> dict[str, Any]:
        """For the operator; never with a key."""
        out, last = self.health.out(now), self.health.last(now)
        missing = [
            offer.served for offer in self.spec.offers.values() if self.listed and offer.served not in self.listed
        ]
        lacks = [f"{model} on {route}" for route, model in self.health.lacks]
        state = "out" if out else "last" if last else "ok" if self.last_ok_at is not None else "unknown"
        return {
            "name": self.spec.name,
            "url": self.spec.base_url,
            "key": "set" if self.spec.api_key else None,
            "state": state,
            "reason": out or last or self.last_fault,
            "breaker": str(self.health.breaker.state(now)),
            "active": self.active,
            "slots": self.spec.slots,
            "models": {offer.model: offer.served for offer in self.spec.offers.values()},
            "not_listed": missing,
            "not_found": lacks,
            "ok_s_ago": None if self.last_ok_at is None else round(now - self.last_ok_at, 1),
        }
