"""The client's own name for a model comes back, wherever the answer is cut, and nothing else changes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.reply_name import ReplyName

SERVED, ASKED = "vendor/served-2026", "asked"


def renamed(pieces: list[bytes]) -> bytes:
    name = ReplyName(SERVED, ASKED)
    return b"".join(map(name.feed, pieces)) + name.end()


def whole(**more) -> dict:
    return {"id": "x", "model": SERVED, "choices": [{"message": {"content": "text"}}], **more}


@given(st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_the_name_is_found_wherever_the_answer_is_cut(cuts, spaced):
    separators = (", ", ": ") if spaced else (",", ":")
    body = json.dumps(whole(), separators=separators).encode()
    at = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    pieces = [body[start:end] for start, end in itertools.pairwise(at)]
    assert json.loads(renamed(pieces)) == {**whole(), "model": ASKED}


def test_text_that_looks_like_it_stays_as_it_is():
    body = json.dumps(whole(text=f'"model":"{SERVED}"', other=SERVED)).encode()
    assert json.loads(renamed([body])) == {**whole(text=f'"model":"{SERVED}"', other=SERVED), "model": ASKED}


def test_an_event_goes_out_whole_and_at_once():
    event = b'data: {"model":"' + SERVED.encode() + b'","choices":[]}\n\n'
    assert ReplyName(SERVED, ASKED).feed(event) == event.replace(SERVED.encode(), ASKED.encode())


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "back\\slash", "größe"])
def test_any_name_can_be_asked_for(name):
    renamer = ReplyName(SERVED, name)
    body = renamer.feed(json.dumps(whole()).encode()) + renamer.end()
    assert json.loads(body)["model"] == name
