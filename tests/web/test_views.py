"""Rows, history and the ring of recent requests."""

from typing import Any

import pytest

from brain_coord.classes.cloud import CloudClass
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.prices import Prices
from brain_coord.classes.upstream import Offer, UpstreamSpec
from brain_coord.classes.upstream_class import UpstreamClass
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.observe.finished import FinishedRequest, decision_id_of
from brain_coord.receipts.body import ReceiptDraft, Timings
from brain_coord.receipts.canonical import Written
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.web.render import UNKNOWN, figure, fragment, gigabytes, plain
from brain_coord.web.view.history import PERIOD_S, History
from brain_coord.web.view.recent import RecentRequests, decision_row
from brain_coord.web.view.rows import Census, NodeRow, Speed, class_rows
from brain_node.contract.catalog import load_catalog


def finished(number: int = 1, **members: Any) -> FinishedRequest:
    draft = ReceiptDraft(
        receipt_id=f"r-{number:024x}",
        request_id="req-1",
        time_s=1_700_000_000.0,
        key_id="k-1",
        plan="free",
        route="/v1/chat/completions",
        model="brain/mock",
        served_model="brain/mock",
        mode="AUTO",
        privacy="PUBLIC",
        streamed=True,
        request_sha256="0" * 64,
        response_sha256=None,
        class_decision=Written({}),
        node_decision=None,
        attempts=[],
        resource_class="NATIVE_NETWORK",
        node_id=None,
        outcome="completed",
        timings=Timings(first_output_ms=100.0, decode_tok_s=50.0, total_ms=500.0),
    )
    draft = draft._replace(**members)
    return FinishedRequest(decision_id_of(draft.receipt_id), draft, recorded=True)


def test_a_figure_that_was_never_measured_is_unknown_and_never_zero():
    assert figure(None, "ms") == UNKNOWN
    assert figure(0.0, "ms") == "0.0 ms"
    assert figure(1234, "tokens") == "1,234 tokens"
    assert gigabytes(None) == UNKNOWN
    assert gigabytes(22919) == "22 GB"


def test_text_of_strangers_cannot_turn_its_surroundings_around():
    assert plain("eu\u202egnp.exe") == "eu�gnp.exe"
    assert plain("a\x1b[31mb\nc") == "a�[31mb�c"


def test_a_class_shows_what_its_operator_configured_and_nothing_else():
    offers = {
        name: Offer(name, name, Prices(0.1, price), quality)
        for name, price, quality in (("a", 2.0, 0.4), ("b", 0.5, None), ("c", None, 0.9))
    }
    services = UpstreamClass(ResourceClass.EXTERNAL_MODEL, make_target=None)
    row = next(each for each in class_rows([services], Census(), {}) if each.resource_class == "EXTERNAL_MODEL")
    assert (row.cost_usd_per_1m, row.quality, row.configured) == (None, None, False)
    assert "not configured" in fragment("parts/class.html", key="x", row=row, base="")
    services.configure([UpstreamSpec("s", "http://192.0.2.1/v1", offers, frozenset())])
    row = next(each for each in class_rows([services], Census(), {}) if each.resource_class == "EXTERNAL_MODEL")
    assert (row.cost_usd_per_1m, row.quality, row.configured) == (0.5, 0.9, True)
    shown = fragment("parts/class.html", key="x", row=row, base="")
    assert "not configured" not in shown
    assert "from 0.50 USD" in shown
    assert "up to 0.90" in shown
    assert shown.count(UNKNOWN) == 2, "latency and reliability"


@pytest.mark.parametrize("operator", [False, True])
def test_the_operators_hardware_is_configured_by_a_node_of_its_own_and_not_by_a_strangers(operator):
    registry = Registry(15.0)
    own = NodeClass(ResourceClass.CLOUD_GPU, registry, load_catalog(), operator=True)
    cloud = CloudClass(own, UpstreamClass(ResourceClass.CLOUD_GPU, make_target=None))
    assert not cloud.configured
    registry.add(Node(node_id="N-0000000000000001", public_key=b"", operator=operator))
    assert cloud.configured is operator


def test_a_row_escapes_all_that_a_node_says():
    evil = "<script>alert(1)</script>"
    row = NodeRow(
        node_id="N-0000000000000001",
        state="ONLINE",
        why=evil,
        operator=False,
        trusted=False,
        region=evil,
        models=(evil,),
        active=0,
        slots=1,
        claimed_slots=1,
        speeds=(Speed(evil, None, "not measured yet"),),
        rtt_ms=None,
        reliability=70,
        compute_class=None,
        measured=False,
        ask_usd_per_1m=None,
        cards=(evil,),
        vram_mib=None,
        engine=evil,
        engines=((evil, "failed", evil),),
        skipped=evil,
    )
    html = fragment("parts/node.html", key="node-1", row=row, base="")
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 8
    assert html.count(UNKNOWN) == 2


def test_the_ring_of_recent_requests_is_bounded_and_newest_first():
    recent = RecentRequests(kept=3)
    recent.add([finished(number) for number in range(4)])
    recent.add([finished(4)])
    assert len(recent) == 3
    assert [each.draft.receipt_id[-1] for each in recent.newest(2)] == ["4", "3"]
    assert recent.get(f"d-{0:024x}") is None
    assert recent.get(f"d-{4:024x}") is not None


def test_a_decision_in_the_list_shows_no_key():
    html = fragment("parts/decision.html", key="d", row=decision_row(finished()), base="/brain")
    assert "k-1" not in html
    assert 'href="/brain/network/receipts/' in html


def test_history_keeps_medians_of_what_was_measured_and_nothing_of_what_failed():
    history = History()
    for first_ms in (100.0, 200.0, 900.0):
        history.finished([finished(timings=Timings(first_output_ms=first_ms, decode_tok_s=None, total_ms=1.0))])
    history.finished([finished(outcome="failed", timings=Timings(first_output_ms=1.0, decode_tok_s=999.0))])
    history.finished([finished(outcome="client_cancelled")])
    point = history.close_period(15.0, {"ONLINE": 2})
    assert (point.served, point.failed) == (4, 1)
    assert point.first_output_p50_ms == 200.0
    assert point.decode_p50_tok_s is None
    assert history.close_period(30.0, {}).first_output_p50_ms is None


def test_history_is_merged_to_what_a_chart_can_show():
    history = History()
    for period in range(1000):
        history.finished([finished()])
        history.close_period(period * PERIOD_S, {"ONLINE": period})
    columns = history.columns(since_s=-1.0, at_most=100)
    assert {len(values) for values in columns.values()} == {100}
    assert columns["served_per_s"] == pytest.approx([1 / PERIOD_S] * 100, abs=1e-4)
    assert columns["online"][-1] == 999
    assert len(history.columns(since_s=990 * PERIOD_S)["time_s"]) == 9
