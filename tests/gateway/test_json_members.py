"""Members of a JSON object go and come as bytes; all others stay what they were."""

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway.json_members import append, members, rewrite, with_only
from brain_coord.gateway.json_scan import MOST_STEPS

NAMES = st.sampled_from(["mode", "model", "a", "\\", '"', "x,y", "{", "é", "😀"]) | st.text(max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


def text_of(value: object, indent: int | None, *, ascii_only: bool) -> bytes:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    return text.encode("utf-8", "surrogatepass")


@given(OBJECTS, st.sets(NAMES), st.sampled_from([None, 0, 2]), st.booleans())
def test_what_is_left_parses_to_what_was_left(value, without, indent, ascii_only):
    body = b" \n" + text_of(value, indent, ascii_only=ascii_only) + b"\t"
    left = json.loads(rewrite(body, without=without, add=(b'"added":[1]',)))
    assert left == {**{name: member for name, member in value.items() if name not in without}, "added": [1]}


@given(OBJECTS, st.sampled_from([None, 0, 2]))
def test_every_member_is_found_in_order(value, indent):
    body = text_of(value, indent, ascii_only=True)
    found = members(body)
    assert [each.name for each in found] == list(value)
    assert [json.loads(body[each.value : each.end]) for each in found] == list(value.values())
    assert [json.loads(b"{" + body[each.start : each.end] + b"}") for each in found] == [
        {name: value[name]} for name in value
    ]


@given(OBJECTS)
def test_appending_keeps_the_rest_byte_for_byte(value):
    body = text_of(value, None, ascii_only=False)
    longer = append(body, b'"z-":1')
    assert longer.startswith(body[:-1])
    assert append(body[:-1] + b" \n" * 99 + b"} ", b'"z-":1').startswith(body[:-1])
    assert json.loads(longer) == {**value, "z-": 1}


def test_numbers_and_escapes_survive_as_they_were_written():
    body = b'{"mode":"CHEAP","temperature": 1e-7,"seed":1180591620717411303424,"x":1.0,"s":"\\u00e9\\/","mode":1}'
    assert rewrite(body, without={"mode"}) == (
        b'{"temperature": 1e-7,"seed":1180591620717411303424,"x":1.0,"s":"\\u00e9\\/"}'
    )


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b'{ "model" : "m","a":1}', b'{ "model" : "m","a":1}'),
        (b'{"model":"dear","model":"m"}', b'{"model":"m"}'),
        (b'{"model":"m","Model":"dear","a":[{"Model":"x"}]}', b'{"a":[{"Model":"x"}],"model":"m"}'),
        (b'{"\\u006dODEL":"dear","model":"m"}', b'{"model":"m"}'),
        (b'{"model":"other"}', b'{"model":"m"}'),
    ],
)
def test_only_one_member_is_left_that_any_reader_may_take_for_the_name(body, left):
    assert with_only(body, "model", "m") == left


def test_a_name_is_recognised_however_it_is_escaped():
    assert rewrite(b'{"\\u006dode":"CHEAP","a":1}', without={"mode"}) == b'{"a":1}'


@pytest.mark.parametrize(
    "text", [b'"' + b"\\n" * 200_000 + b'"', b'"' + b'\\"' * 50_000 + b'"', b"[" + b"1," * 200_000 + b"1]"]
)
def test_large_values_are_skipped_whole(text):
    body = b'{"a":' + text + b',"mode":1}'
    assert rewrite(body, without={"mode"}) == b'{"a":' + text + b"}"
    assert math.isclose(len(orjson.loads(body)), 2)


@pytest.mark.parametrize("text", [b"[],", b'"",', b"{},"])
def test_a_body_of_nothing_but_brackets_is_given_up_before_it_takes_long(text):
    with pytest.raises(ValueError, match="more than 1000000 steps"):
        members(b'{"a":[' + text * (16 * MOST_STEPS + 16) + b"0]}")


@pytest.mark.parametrize("escapes", range(40))
def test_any_number_of_escapes_is_read_alike(escapes):
    text = b'"' + rb"\"" * escapes + rb"\\" + b'"'
    assert rewrite(b'{"a":' + text + b',"mode":1}', without={"mode"}) == b'{"a":' + text + b"}"
    with pytest.raises(ValueError, match=r"no end"):
        members(b'{"a":' + text[:-1])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"a":1',
        b'{"a":"',
        b'{"a":1}}',
        b'{"a":1} x',
        b'x {"a":1}',
        b"7",
        b'{"a" 1}',
        b"{" + b'"a":1,' * 10_001 + b'"b":2}',
    ],
)
def test_what_is_no_object_is_refused(body):
    with pytest.raises(ValueError):
        members(body)
