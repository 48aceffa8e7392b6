"""A request as the gateway goes on with it: what is checked, what is ours, and what the engine gets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.gateway.dialects import CHAT, COUNT_TOKENS, DIALECTS, EMBEDDINGS, MESSAGES
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.json_members import MOST
from brain_coord.gateway.request import LARGE_BYTES, OWN_FIELDS, parse_request
from brain_coord.routing.vocabulary import Mode, Privacy
from tests.gateway.engine_streams import REQUESTS

CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def parsed(body, dialect=CHAT, headers=None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_request("req-1", dialect, raw, headers or {})


def refused(body, dialect=CHAT, headers=None) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(body, dialect, headers)
    return error.value


@pytest.mark.parametrize("path", DIALECTS)
def test_a_request_that_is_not_streamed_goes_on_as_it_came(path):
    raw = json.dumps({"model": "m", **REQUESTS[path]}, indent=1).encode() + b"\n"
    assert parsed(raw, DIALECTS[path]).body is raw


@pytest.mark.parametrize("path", DIALECTS)
def test_only_forms_that_tell_usage_on_demand_are_asked_for_it(path):
    body = {"model": "m", "stream": True, **REQUESTS[path]}
    request = parsed(body, DIALECTS[path])
    asked = path in ("/v1/chat/completions", "/v1/completions")
    assert json.loads(request.body) == {**body, **({"stream_options": {"include_usage": True}} if asked else {})}
    assert request.stream is (path not in (EMBEDDINGS.path, COUNT_TOKENS.path))
    assert request.client_usage is not asked


def object_of(pairs, space: bytes = b"", escape: int = 0) -> bytes:
    """An object as somebody may write it, with names that come again or are spelt in escapes."""
    names = [json.dumps(name) for name, _ in pairs]
    if escape:
        spelt = ["".join(f"\\u{ord(char):04x}" for char in name) for name, _ in pairs]
        names = [f'"{spelt[at]}"' if at % escape == 0 else name for at, name in enumerate(names)]
    written = [name.encode() + space + b":" + space + value for name, (_, value) in zip(names, pairs, strict=True)]
    return space + b"{" + space + (space + b"," + space).join(written) + space + b"}" + space


NAMES = ["model", "stream", "stream_options", "mode", "node", "region", "messages", "max_tokens", "n", "é", '"mode"']
VALUES = st.recursive(
    st.sampled_from(
        [b"null", b"true", b"1e-7", b"1.0", b"1180591620717411303424", b"-0", b'"a\\u00e9\\/\\ud83c\\udf0d"']
    )
    | st.text(st.characters(codec="utf-8"), max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False).encode()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b" , ".join(items) + b"]")
        | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3).map(object_of)
    ),
    max_leaves=6,
)
WELL = {
    "model": st.sampled_from([b'"m"', b'"a \\"b\\""']),
    "messages": VALUES.map(lambda value: b"[%b]" % value),
    "stream": st.sampled_from([b"true", b"true", b"false", b"null"]),
    "stream_options": st.sampled_from(
        [b"null", b"{}", b'{"include_usage":false}', b'{"include_usage" : true}', b'{"x":1.0, "include_usage":null}']
    ),
    "mode": st.sampled_from([b'"CHEAP"', b'"fast"', b"null"]),
    "node": st.just(b'"N-1"'),
    "region": st.just(b'"eu"'),
}
MEMBERS = st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), WELL.get(name, VALUES)))
NEEDED = [("model", b'"m"'), ("messages", b"[1]")]


@pytest.mark.parametrize("large", [False, True])
@given(
    more=st.lists(MEMBERS, max_size=8),
    space=st.sampled_from([b"", b" ", b"\r\n\t "]),
    escape=st.integers(0, 3),
    first=st.booleans(),
)
@settings(max_examples=40)
def test_an_engine_gets_just_the_object_that_the_client_wrote_but_for_the_documented_changes(
    more, space, escape, first, large
):
    pairs = [*NEEDED, *more] if first else [*more, *NEEDED]
    if large:
        pairs.append(("padding", b'"%b"' % (b'\\"{[' * (LARGE_BYTES // 4))))
    raw = object_of(pairs, space, escape)
    wanted = json.loads(raw)
    request = parsed(raw)
    streamed = wanted.get("stream") is True
    options = wanted.get("stream_options") or {}
    assert (request.model, request.stream) == (wanted["model"], streamed)
    assert request.client_usage is (options.get("include_usage") is True)
    for name in OWN_FIELDS:
        wanted.pop(name, None)
    if streamed and not request.client_usage:
        wanted["stream_options"] = {**options, "include_usage": True}
    assert repr(sorted(json.loads(request.body).items())) == repr(sorted(wanted.items()))
    wanted["model"] = "other"
    assert repr(sorted(json.loads(request.body_for("other")).items())) == repr(sorted(wanted.items()))


@pytest.mark.parametrize(
    ("options", "sent", "client_usage"),
    [
        (None, {"include_usage": True}, False),
        ({}, {"include_usage": True}, False),
        ({"include_usage": False}, {"include_usage": True}, False),
        ({"include_usage": None}, {"include_usage": True}, False),
        ({"include_usage": True}, {"include_usage": True}, True),
        ({"odd": 1}, {"odd": 1, "include_usage": True}, False),
        ({"odd": 1, "include_usage": True}, {"odd": 1, "include_usage": True}, True),
    ],
)
def test_usage_is_asked_for_beside_whatever_else_the_client_asked(options, sent, client_usage):
    request = parsed({**CHAT_BODY, "stream": True, "stream_options": options})
    assert json.loads(request.body)["stream_options"] == sent
    assert request.client_usage is client_usage


@pytest.mark.parametrize("told", ["off", "false", "true", 1, [1]])
def test_usage_is_asked_for_by_yes_or_no(told):
    error = refused({**CHAT_BODY, "stream": True, "stream_options": {"include_usage": told}})
    assert (error.code, error.param) == ("invalid_field", "stream_options.include_usage")


def test_what_else_stands_in_the_stream_options_goes_on_as_it_was_written():
    deep = b"[" * 300 + b"]" * 300
    given = b'{"include_usage": false, "a":1180591620717411303424,"b": 1.0,"c":1e-7, "d":%b}' % deep
    raw = b'{"model":"m","stream":true,"stream_options":{},"messages":[1],"stream_options" : %b}' % given
    assert parsed(raw).body == (
        b'{"model":"m","stream":true,"messages":[1],"stream_options":'
        b'{"a":1180591620717411303424,"b": 1.0,"c":1e-7,"d":%b,"include_usage":true}}' % deep
    )


@pytest.mark.parametrize("member", ['"mode":"CHEAP"', '"stream":true,"stream_options":{}', '"stream":true,"node":null'])
@pytest.mark.parametrize("name", ["a", "a%d"])
def test_an_object_with_too_many_members_is_the_clients_fault_wherever_it_has_to_be_changed(member, name):
    many = ",".join(f'"{name % number if "%" in name else name}":1' for number in range(MOST))
    raw = b'{"model":"m","messages":[1],%b,%b}' % (many.encode(), member.encode())
    assert refused(raw).code == "invalid_json"
    plain = parsed(b'{"model":"m","messages":[1],%b}' % many.encode())
    with pytest.raises(ApiError) as error:
        plain.body_for("another")
    assert error.value.status == 400


def test_our_own_fields_never_reach_an_engine_and_those_of_others_inside_do():
    own = {
        "mode": "cheap",
        "privacy": "private",
        "region": "eu",
        "require_region": True,
        "max_cost_usd": 0.5,
        "max_latency_ms": 1,
        "max_ask_usd_per_1m": 2,
        "node": "N-1",
    }
    assert set(own) == set(OWN_FIELDS)
    request = parsed({**CHAT_BODY, **own, "metadata": own})
    assert json.loads(request.body) == {**CHAT_BODY, "metadata": own}
    assert (request.wishes.mode, request.wishes.privacy, request.wishes.node) == (Mode.CHEAP, Privacy.PRIVATE, "N-1")
    assert (request.wishes.max_cost_usd, request.wishes.require_region) == (0.5, True)


def test_headers_say_the_same_and_the_body_has_precedence():
    headers = {b"x-brain-mode": b"fast", b"x-brain-require-region": b"true", b"x-brain-max-cost-usd": b"0.25"}
    request = parsed({**CHAT_BODY, "mode": "CHEAP"}, headers=headers)
    assert (request.wishes.mode, request.wishes.require_region, request.wishes.max_cost_usd) == (Mode.CHEAP, True, 0.25)
    raw = json.dumps(CHAT_BODY).encode()
    assert parsed(raw, headers=headers).body is raw


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", "SOON"),
        ("mode", 3),
        ("privacy", "SECRET"),
        ("region", ""),
        ("region", "x" * 200),
        ("region", "eu\x1b[31m"),
        ("node", "N-\n"),
        ("require_region", "maybe"),
        ("max_cost_usd", -1),
        ("max_cost_usd", True),
        ("max_latency_ms", "fast"),
        ("node", 7),
        ("stream", "yes"),
        ("stream_options", []),
    ],
)
def test_a_wrong_value_names_its_field(field, value):
    error = refused({**CHAT_BODY, field: value})
    assert (error.status, error.code, error.param) == (400, "invalid_field", field)


def test_the_name_of_the_model_is_put_in_and_nothing_else_changes():
    raw = b'{"temperature": 1e-7,"model":"brain/auto","messages":[{"model":"x"}], "seed":1180591620717411303424}'
    request = parsed(raw)
    assert request.body_for("brain/auto") is raw
    assert request.body_for('a "b"') == (
        b'{"temperature": 1e-7,"messages":[{"model":"x"}],"seed":1180591620717411303424,"model":"a \\"b\\""}'
    )


@pytest.mark.parametrize(("repeats", "size"), [(1, 2 * LARGE_BYTES), (400_000, 3)])
def test_a_large_body_is_read_by_its_outline_and_goes_on_whole(repeats, size):
    content = [{"type": "text", "text": 'é\\"{[' * (size // 5)}] * min(repeats, 3) + ["x" * size] * (repeats - 1)
    body = {"mode": "CHEAP", "stream": True, "model": "m", "messages": [{"content": content}], "seed": 7}
    request = parsed(body)
    assert len(request.body) > LARGE_BYTES
    assert (request.model, request.stream, request.wishes.mode) == ("m", True, Mode.CHEAP)
    del body["mode"]
    assert json.loads(request.body) == {**body, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m","messages":["' + b"x" * LARGE_BYTES + b'"]',
        b'{"model":"m","messages":["' + b"x" * LARGE_BYTES + b'"]}}',
        b'["' + b"x" * LARGE_BYTES + b'"]',
        b'{"model":nan,"messages":["' + b"x" * LARGE_BYTES + b'"]}',
    ],
)
def test_a_large_body_that_is_no_object_is_refused_too(raw):
    assert refused(raw).code == "invalid_json"


@pytest.mark.parametrize(
    "large", [f'"{"x" * LARGE_BYTES}"', "{" + '"a":1,' * LARGE_BYTES + '"b":1}', "7" * LARGE_BYTES]
)
def test_a_large_value_of_the_wrong_kind_is_no_list_of_messages(large):
    assert refused(b'{"model":"m","messages":%b}' % large.encode(), MESSAGES).code == "missing_field"


def test_a_retry_of_the_client_itself_is_known():
    assert parsed(CHAT_BODY, headers={b"x-stainless-retry-count": b"1"}).client_retry
    assert not parsed(CHAT_BODY, headers={b"x-stainless-retry-count": b"0"}).client_retry
    assert not parsed(CHAT_BODY).client_retry
