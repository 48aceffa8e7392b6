"""How many tokens a prompt is taken for: by its length, without what is no text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.upstream_class import BYTES_PER_TOKEN, tokens_of

PICTURE = "data:image/png;base64," + "A" * 100_000


def body_of(*parts: str) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}]}).encode()


def test_a_text_counts_by_its_length():
    assert tokens_of(b"") == 1
    assert tokens_of(b"a" * 400) == 101


def test_pictures_count_for_no_more_than_their_names():
    without = tokens_of(body_of("what is on these?", "data:image/png", "data:image/png"))
    assert tokens_of(body_of(PICTURE, "what is on these?", PICTURE)) == without


def test_a_text_that_speaks_of_pictures_is_taken_for_one_to_its_end():
    assert tokens_of(b'{"a":"x;base64,y;base64,z","b":"text"}') == tokens_of(b'{"a":"x","b":"text"}')


@given(st.lists(st.sampled_from([";base64,", '"', "text", ",", ";"]), max_size=20))
def test_nothing_is_taken_off_twice(pieces):
    body = "".join([*pieces, '"']).encode()
    left = b""
    while (at := body.find(b";base64,")) >= 0:
        left, body = left + body[:at], body[body.index(b'"', at) :]
    assert tokens_of("".join([*pieces, '"']).encode()) == len(left + body) // BYTES_PER_TOKEN + 1
