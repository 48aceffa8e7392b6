"""The body of a receipt says everything the draft knows, and nothing of what was asked or answered."""

import ast
import inspect

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.receipts import body as body_module
from brain_coord.receipts.body import Attempt, Price, ReceiptDraft, Timings, Tokens, time_of, timestamp
from brain_coord.receipts.canonical import Written, canonical
from tests.support.receipts import attempt, draft

NAMES = {
    "receipt_id": "id",
    "time_s": "time",
    "key_id": "key",
    "resource_class": "class",
    "node_id": "node",
    "error_code": "error",
    "class_decision": "decision",
    "node_decision": "decision",
}


def test_every_field_of_the_draft_stands_in_the_body():
    body = draft().body()
    told = {NAMES.get(name, name) for name in ReceiptDraft._fields} - {"extra"}
    assert told == set(body)
    assert body["decision"] == {"class": draft().class_decision, "node": draft().node_decision}


@pytest.mark.parametrize(("record", "member"), [(Tokens, "tokens"), (Timings, "timings"), (Price, "price")])
def test_every_part_stands_in_the_body_with_all_its_fields(record, member):
    assert set(record._fields) == set(draft().body()[member]) - {"measured_by"}


@pytest.mark.parametrize("record", [ReceiptDraft, Attempt, Tokens, Timings, Price])
def test_every_field_is_described(record):
    tree = ast.parse(inspect.getsource(body_module))
    (described,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == record.__name__]
    for line, after in zip(described.body, described.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign):
            assert isinstance(after, ast.Expr), f"{record.__name__}.{line.target.id} has no description"


def test_times_are_said_to_be_measured_by_the_coordinator():
    assert draft().body()["timings"]["measured_by"] == "coordinator"


def test_an_unknown_price_is_null():
    assert draft(price=None).body()["price"] is None


def test_further_members_cannot_replace_one():
    body = draft(extra={"verified": True, "outcome": "completed with honours"}).body()
    assert body["verified"] is True
    assert body["outcome"] == "completed"


def test_a_body_is_canonical_json_whatever_the_floats_are():
    odd = Timings(first_output_ms=float("nan"), decode_tok_s=float("inf"), total_ms=1.0)
    timings = orjson.loads(canonical(draft(timings=odd).body()))["timings"]
    assert timings["first_output_ms"] is None
    assert timings["decode_tok_s"] is None
    assert timings["total_ms"] == 1


@given(
    st.lists(st.none() | st.floats(), min_size=5, max_size=5),
    st.floats(),
    st.lists(st.dictionaries(st.text(), st.none() | st.floats() | st.text() | st.integers(0, 2**53 - 1))),
    st.dictionaries(st.text(), st.floats() | st.text()),
)
def test_the_canonical_form_of_a_draft_is_that_of_its_body(times, amount_usd, decisions, extra):
    attempts = [attempt(started_ms=each) for each in times]
    for decision in decisions:
        it = draft(
            timings=Timings(*times),
            price=Price(amount_usd=amount_usd, prompt_usd_per_1m=times[0]),
            attempts=attempts,
            class_decision=Written(decision),
            node_decision=Written(decision),
            extra=extra,
        )
        assert it.canonical() == canonical(it.body())
    assert draft(node_decision=None).canonical() == canonical(draft(node_decision=None).body())


def test_time_is_a_label_to_the_millisecond():
    assert timestamp(1_750_000_000.5) == "2025-06-15T15:06:40.500Z"
    assert time_of(timestamp(1_750_000_000.123)) == pytest.approx(1_750_000_000.123, abs=1e-6)
    assert timestamp(time_of(timestamp(1_750_000_000.999))) == timestamp(1_750_000_000.999)
