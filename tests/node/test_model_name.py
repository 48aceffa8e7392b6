"""Model names changed in place, and nothing else."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_node.model_name import AnswerRename, rename_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.just("model"), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "renamed"),
    [
        (b'{"model":"a","n":1}', b'{"model":"b","n":1}'),
        (b'{ "n" : 1e-7 ,\n "model" : "a" }', b'{ "n" : 1e-7 ,\n "model" : "b" }'),
        (b'{"x":{"model":"a"},"model":"a"}', b'{"x":{"model":"a"},"model":"b"}'),
        (b'{"x":["model","model",{"model":"a"}],"model":"a"}', b'{"x":["model","model",{"model":"a"}],"model":"b"}'),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a"}', b'{"x":"\\"model\\":\\"a\\"","model":"b"}'),
        (b'{"y":"model","model":"a"}', b'{"y":"model","model":"b"}'),
        (b'{"model":"a","model":"c"}', b'{"model":"b","model":"b"}'),
        (b'{"model":"a","Model":"c","MODEL" :"d"}', b'{"model":"b","Model":"b","MODEL" :"b"}'),
        (b'{"mod\\u0065l":"a","x":[{"Model":"c"}]}', b'{"mod\\u0065l":"b","x":[{"Model":"c"}]}'),
        (b'\xef\xbb\xbf{"model":"a"}', b'\xef\xbb\xbf{"model":"b"}'),
    ],
)
def test_only_the_top_level_model_is_renamed(body, renamed):
    assert rename_request(body, "b") == renamed


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":1}',
        b'{"x":{"model":"b"}}',
        b'{"model":5}',
        b'{"model":"b","model":null}',
        b'{"MODEL":[],"model":"b"}',
        b'["model","a"]',
        b"not json",
        b'{"model"',
        b'{"model":"a',
        b"",
        '{"model":"a"}'.encode("utf-16"),
        '{"model":"a"}'.encode("utf-32-be"),
        '{"x":"PAD"}'.encode("utf-16-le").replace("PAD".encode("utf-16-le"), b'"model":"b" '),
    ],
)
def test_what_a_server_may_read_in_another_way_is_not_for_it(body):
    assert rename_request(body, "b") is None


OTHER_KEYS = st.text(max_size=8).filter(lambda key: key.lower() != "model")


@given(rest=st.dictionaries(OTHER_KEYS, JSON, max_size=5), name=st.text(max_size=20))
def test_any_request_keeps_everything_else(rest, name):
    body = orjson.dumps({**rest, "model": "before"})
    assert orjson.loads(rename_request(body, name)) == {**rest, "model": name}


TEXTS = [r'"model"', r'"Model"', r'"mod\u0065L"', r'"\u004Dodel"', r'"\"model"', r'"x"', r'""']
TEXTS += [r'"{"', r'"]\""', r'"\\"', r'"a\\\"}"']


@st.composite
def written(draw: st.DrawFn) -> str:
    """JSON as nobody's serializer writes it: any spacing, keys twice, letters as escapes, brackets and quotes in strings."""
    space, text = st.sampled_from(["", " ", "\n\t"]), st.sampled_from(TEXTS)
    value = st.recursive(
        text | st.sampled_from(["1", "-2e5", "true"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]"),
            st.lists(st.tuples(text, inner), max_size=3).map(
                lambda members: "{" + ",".join(f"{key}:{part}" for key, part in members) + "}"
            ),
        ),
        max_leaves=6,
    )
    members = draw(st.lists(st.tuples(space, text, space, space, value, space), max_size=5))
    return "{" + ",".join(f"{a}{key}{b}:{c}{part}{d}" for a, key, b, c, part, d in members) + "}"


@given(written())
def test_every_top_level_model_is_renamed_however_it_is_written(body):
    def pairs(text: str | bytes) -> list[tuple[str, object]]:
        return json.loads(text, object_pairs_hook=list)

    members = pairs(body)
    models = [part for key, part in members if key.lower() == "model"]
    renamed = rename_request(body.encode(), "b")
    if models and all(isinstance(part, str) for part in models):
        assert pairs(renamed) == [(key, "b" if key.lower() == "model" else part) for key, part in members]
    else:
        assert renamed is None


@given(before=written(), after=written(), space=st.sampled_from(["", " "]))
def test_a_glance_sees_what_a_whole_look_does(before, after, space):
    said = f'"model":{space}"x"'
    for body in (f'{{"y":{before},{said},"z":{after}}}', f'{{{said},"z":{after}}}', f'{{"y":{before},{said}}}', before):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("brain_node.model_name.SMALL_BYTES", 0)
            whole_look = rename_request(body.encode(), "x")
        assert rename_request(body.encode(), "x") == whole_look


@given(rest=st.dictionaries(st.text(max_size=8), JSON, max_size=4), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_an_answer_cut_anywhere_comes_out_renamed_and_otherwise_the_same(rest, cuts):
    rest.pop("model", None)
    text = b"data: " + orjson.dumps({**rest, "model": "served"}) + b"\n\ndata: [DONE]\n\n"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    rename = AnswerRename("served", "the/id")
    out = b"".join(rename.feed(text[a:b]) for a, b in pairwise(edges)) + rename.end()
    event, done, _ = out.split(b"\n\n")
    assert orjson.loads(event.removeprefix(b"data: ")) == {**rest, "model": "the/id"} or _nested(rest)
    assert done == b"data: [DONE]"


def _nested(value: object) -> bool:
    """Whether somebody else's member is named and called the same: renamed as well, which is documented."""
    if isinstance(value, dict):
        return value.get("model") == "served" or any(_nested(part) for part in value.values())
    return isinstance(value, list) and any(_nested(part) for part in value)


def test_a_whole_event_is_not_held_back():
    assert AnswerRename("served", "id").feed(b'data: {"x":"short"}\n\n') == b'data: {"x":"short"}\n\n'
