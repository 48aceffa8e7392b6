"""The trace of a request, from what its receipt keeps."""

import pytest

from brain_coord.receipts.body import ReceiptDraft, Timings
from brain_coord.receipts.canonical import Written
from brain_coord.routing.dry_run import decide
from brain_coord.routing.record import routing_record
from brain_coord.routing.snapshot import read_snapshot
from brain_coord.web.render import fragment
from brain_coord.web.view.trace import trace_of
from tests.support.receipts import attempt


def node(node_id: str, **members: object) -> dict[str, object]:
    model = "qwen/qwen2.5-7b-instruct"
    return {
        "node_id": node_id,
        "state": "ONLINE",
        "serves": [model],
        "loaded": [model],
        "vram_mib": 24_000,
        "slots": 4,
        "active": 0,
        "queue": 0,
        "tok_s": {model: 50.0},
        "benchmark_tok_s": 50.0,
        "basis": "coordinator-timed",
        "rtt_ms": 20.0,
        "reliability": 80,
        "region": None,
        "ask_usd_per_1m": None,
        **members,
    }


def body(nodes: list[dict[str, object]], attempts: list[dict[str, object]] | None = None) -> dict[str, object]:
    model = "qwen/qwen2.5-7b-instruct"
    available = any(each["state"] == "ONLINE" for each in nodes)
    snapshot = read_snapshot(
        {
            "request": {"model": model, "mode": "AUTO", "privacy": "PUBLIC", "plan": "free", "names_node_model": True},
            "model": {"id": model, "min_vram_mib": 17_000, "mock": False},
            "community_first": "free",
            "classes": [
                {
                    "class": "NATIVE_NETWORK",
                    "supported": True,
                    "available": available,
                    "latency_ms": 900.0,
                    "confidence": 3,
                },
                {"class": "CLOUD_GPU", "supported": False, "available": False, "confidence": 0},
            ],
            "nodes": nodes,
        }
    )
    routing = routing_record(decide(snapshot))
    draft = ReceiptDraft(
        receipt_id="r-1",
        request_id="req-1",
        time_s=0.0,
        key_id="k-secret",
        plan="free",
        route="/v1/chat/completions",
        model=model,
        served_model=model,
        mode="COMMUNITY",
        privacy="PUBLIC",
        streamed=True,
        request_sha256="0" * 64,
        response_sha256=None,
        class_decision=Written(routing["class"]),
        node_decision=Written(routing["node"]),
        attempts=attempts or [],
        resource_class="NATIVE_NETWORK" if available else None,
        node_id=None,
        outcome="completed" if available else "failed",
        timings=Timings(total_ms=100.0),
    )
    return draft.body()


def test_the_terms_of_every_score_add_up_to_it():
    trace = trace_of(body([node("N-0000000000000001", ask_usd_per_1m=0.2), node("N-0000000000000002", rtt_ms=None)]))
    assert len(trace.nodes) == 2
    for score in (*trace.nodes, *trace.classes):
        assert sum(term.points for term in score.terms) == pytest.approx(score.total, abs=2e-6)
        assert score.segments[-1].start + score.segments[-1].width == pytest.approx(1000 * score.total, abs=0.02)
    assert trace.nodes[0].selected
    assert "rtt unmeasured" in trace.nodes[1].notes


def test_what_is_unknown_is_shown_as_unknown_with_what_it_was_taken_for():
    trace = trace_of(body([node("N-0000000000000001")]))
    cost = trace.classes[0].terms[0]
    assert cost.unknown
    assert "UNKNOWN, taken for 0.750" in fragment("parts/trace.html", trace=trace, base="")


def test_a_request_for_nobody_names_every_node_and_its_reason():
    trace = trace_of(body([node("N-0000000000000001", state="OFFLINE"), node("N-0000000000000002", state="DRAINING")]))
    assert trace.sentence.startswith("0 of 2 nodes can serve qwen/qwen2.5-7b-instruct right now (N-0000")
    assert dict(trace.rejected)["N-0000000000000001"] == ("offline",)
    html = fragment("parts/trace.html", trace=trace, base="")
    assert "No target was asked" in html
    assert "k-secret" not in html


def test_attempts_stand_on_the_time_line_of_the_whole_request():
    attempts = [
        attempt(target="N-1", started_ms=0.0, ended_ms=40.0, cause="node_lost", status=None, blamed=True),
        attempt(target="N-2", started_ms=40.0, ended_ms=100.0),
    ]
    steps = trace_of(body([node("N-0000000000000001")], attempts)).attempts
    assert [(step.start, step.width) for step in steps] == [(0.0, 400.0), (400.0, 600.0)]


def test_the_privacy_filter_says_who_may_see_a_prompt():
    members = body([node("N-0000000000000001")])
    allowed = {each.name: each.allowed for each in trace_of({**members, "privacy": "PRIVATE"}).filter}
    assert allowed == {"NATIVE_NETWORK": False, "CLOUD_GPU": True}


def test_work_without_plaintext_is_barred_from_nobody_and_says_whether_it_was_checked():
    members = body([node("N-0000000000000001")])
    members["decision"]["class"]["snapshot"]["request"]["carries_plaintext"] = False
    trace = trace_of({**members, "privacy": "PRIVATE", "verified": True})
    assert all(each.allowed for each in trace.filter)
    assert trace.verified
    html = fragment("parts/trace.html", trace=trace, base="")
    assert "carries no plaintext" in html
    assert "checked and is right" in html
