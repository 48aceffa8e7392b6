"""How one request ran, as a page shows it: privacy filter, class scores, node scores, attempts, timings.

Everything is read from what a receipt keeps, so the trace of a live request and that of a year-old receipt are one view.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from brain_coord.routing import weights
from brain_coord.routing.vocabulary import Mode, Privacy, ResourceClass
from brain_coord.routing.weights import ALLOWED_TRUST, CLASS_WEIGHTS, TRUST_OF

NODE_TERMS: Final = (
    ("capability", weights.CAPABILITY_WEIGHT),
    ("availability", weights.AVAILABILITY_WEIGHT),
    ("latency", weights.LATENCY_WEIGHT),
    ("reputation", weights.REPUTATION_WEIGHT),
    ("price", weights.PRICE_WEIGHT),
)
CLASS_TERMS: Final = ("cost", "latency", "reliability", "quality")


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of a score: `points` is weight times value."""

    name: str
    weight: float
    value: float
    unknown: bool = False

    @property
    def points(self) -> float:
        """What it adds."""
        return self.weight * self.value


@dataclass(frozen=True, slots=True)
class Segment:
    """A term's place in a bar, in thousandths of a whole score of 1."""

    term: Term
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Score:
    """A named score and the terms that add up to it."""

    name: str
    total: float
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()
    selected: bool = False

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The bar."""
        start, segments = 0.0, []
        for term in self.terms:
            width = round(term.points * 1000, 3)
            segments.append(Segment(term, round(start, 3), width))
            start += width
        return tuple(segments)


@dataclass(frozen=True, slots=True)
class FilteredClass:
    """One class before the privacy filter."""

    name: str
    trust: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt, with its place in time as thousandths of the whole request."""

    number: int
    target: str
    resource_class: str
    model: str
    started_ms: float
    ended_ms: float
    cause: str | None
    blamed: bool
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of a model in browser tabs: who held them, and whose results for them were compared and agreed."""

    stage: str
    first: int
    last: int
    tabs: tuple[str, ...]
    agreed_with: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """How one request ran."""

    model: str
    served_model: str | None
    mode: str
    requested_mode: str | None
    privacy: str
    community_first: bool
    outcome: str
    error: str | None
    resource_class: str | None
    node_id: str | None
    sentence: str
    filter: tuple[FilteredClass, ...]
    plaintext: bool
    """Whether the work carried any; the filter does not concern work that carried none."""
    classes: tuple[Score, ...]
    excluded: tuple[tuple[str, tuple[str, ...]], ...]
    nodes: tuple[Score, ...]
    eligible: int
    considered: int
    rejected: tuple[tuple[str, tuple[str, ...]], ...]
    attempts: tuple[Step, ...]
    timings: tuple[tuple[str, float | None, str], ...]
    tokens: tuple[tuple[str, int | None], ...]
    verified: bool | None
    """Whether the result was checked; `None` for work whose result nobody can check."""
    layers: tuple[Layers, ...]
    """For an answer that browser tabs made together."""
    moves: tuple[tuple[str, str, int], ...]
    """Tabs that their part was taken from, why, and after how many tokens."""


def trace_of(body: Mapping[str, Any]) -> Trace:
    """The trace in a receipt's body."""
    class_record = body["decision"]["class"] or {}
    chosen: Mapping[str, Any] = class_record.get("decision") or {}
    node_record = _node_record(body["decision"]["node"])
    node: Mapping[str, Any] = node_record.get("decision") or {}
    privacy = Privacy(body["privacy"])
    asked: Mapping[str, Any] = (class_record.get("snapshot") or {}).get("request") or {}
    plaintext = asked.get("carries_plaintext", True) is not False
    timings = body["timings"]
    return Trace(
        model=body["model"],
        served_model=body["served_model"],
        mode=body["mode"],
        requested_mode=chosen.get("requested_mode"),
        privacy=str(privacy),
        community_first=bool(chosen.get("community_first")),
        outcome=body["outcome"],
        error=body["error"],
        resource_class=body["class"],
        node_id=body["node"],
        sentence=_sentence(body, chosen, node_record),
        filter=tuple(_filtered(name, privacy, plaintext) for name in chosen.get("order", ())),
        plaintext=plaintext,
        classes=_class_scores(chosen, body["mode"]),
        excluded=tuple((name, tuple(codes)) for name, codes in (chosen.get("exclusions") or {}).items()),
        nodes=_node_scores(node),
        eligible=node_record.get("eligible", 0),
        considered=node_record.get("considered", 0),
        rejected=tuple((node_id, tuple(words)) for node_id, words in (node.get("rejections") or {}).items()),
        attempts=_steps(body["attempts"], timings["total_ms"]),
        timings=(
            ("waited for a slot", timings["queued_ms"], "ms"),
            ("first output", timings["first_output_ms"], "ms"),
            ("decode", timings["decode_ms"], "ms"),
            ("decode speed", timings["decode_tok_s"], "tok/s"),
            ("whole request", timings["total_ms"], "ms"),
        ),
        tokens=(
            ("prompt", body["tokens"]["prompt_billed"]),
            ("completion", body["tokens"]["completion_billed"]),
        ),
        verified=body.get("verified"),
        layers=_layers(body.get("browser") or {}),
        moves=tuple(
            (move["tab"], move["cause"], move["after_tokens"]) for move in (body.get("browser") or {}).get("moves", ())
        ),
    )


def _layers(story: Mapping[str, Any]) -> tuple[Layers, ...]:
    return tuple(
        Layers(each["stage"], each["layers"][0], each["layers"][1], tuple(each["tabs"]), tuple(each["agreed_with"]))
        for each in story.get("stages", ())
    )


def _node_record(record: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The kept node decision; of `brain/auto` that of the model which was chosen."""
    if record is None:
        return {}
    if "chosen" in record:
        return {**(record["chosen"] or {}), "reason": record["reason"]}
    return record


def _sentence(body: Mapping[str, Any], chosen: Mapping[str, Any], node_record: Mapping[str, Any]) -> str:
    reason = node_record.get("reason") or (node_record.get("decision") or {}).get("reason")
    if chosen.get("selected") is None:
        return reason or chosen.get("reason") or ""
    if reason is None:
        return str(chosen.get("reason") or "")
    selected = (node_record.get("decision") or {}).get("selected")
    by_attempts = (attempt["class"] for attempt in body["attempts"] if attempt["target"] == selected)
    return f"{next(by_attempts, body['class'] or chosen['selected'])} ({body['mode']}) → {reason}"


def _filtered(name: str, privacy: Privacy, plaintext: bool) -> FilteredClass:
    trust = TRUST_OF[ResourceClass(name)]
    return FilteredClass(name, str(trust), not plaintext or trust in ALLOWED_TRUST[privacy])


def _class_scores(chosen: Mapping[str, Any], mode: str) -> tuple[Score, ...]:
    weighting = CLASS_WEIGHTS[Mode(mode)]
    scores = []
    for name in chosen.get("order", ()):
        total, penalties = chosen["scores"].get(name), chosen["penalties"].get(name)
        if total is None or penalties is None:
            continue
        unknown = (chosen.get("unknown") or {}).get(name, ())
        terms = tuple(Term(each, getattr(weighting, each), penalties[each], each in unknown) for each in CLASS_TERMS)
        scores.append(Score(name, total, terms, selected=name == chosen.get("selected")))
    return tuple(scores)


def _node_scores(node: Mapping[str, Any]) -> tuple[Score, ...]:
    return tuple(
        Score(
            name=each["node_id"],
            total=each["total"],
            terms=tuple(Term(name, weight, each[name]) for name, weight in NODE_TERMS),
            notes=tuple(each["notes"]),
            selected=each["node_id"] == node.get("selected"),
        )
        for each in node.get("ranked", ())
    )


def _steps(attempts: Any, total_ms: float | None) -> tuple[Step, ...]:
    whole = max([total_ms or 0.0, *(attempt["ended_ms"] for attempt in attempts)]) or 1.0
    return tuple(
        Step(
            number=number,
            target=attempt["target"],
            resource_class=attempt["class"],
            model=attempt["model"],
            started_ms=attempt["started_ms"],
            ended_ms=attempt["ended_ms"],
            cause=attempt["cause"],
            blamed=attempt["blamed"],
            start=round(1000 * attempt["started_ms"] / whole, 3),
            width=round(max(4.0, 1000 * (attempt["ended_ms"] - attempt["started_ms"]) / whole), 3),
        )
        for number, attempt in enumerate(attempts, 1)
    )
