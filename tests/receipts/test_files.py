"""Receipts are read from whatever form a file has."""

import io
import json

import pytest

from brain_coord.receipts.files import items_of
from brain_coord.receipts.verify import Verification
from tests.support.receipts import sealed_chain

CHAIN, _ = sealed_chain(3)
LINES = [link.line() for link in CHAIN]


def verified(text):
    found = Verification()
    for _, item in items_of(io.BytesIO(text)):
        found.add(item)
    return found.receipts


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"\n".join(LINES), 3),
        (b"\n".join(LINES) + b"\n", 3),
        (b"\n\n" + LINES[0] + b"\n\n" + LINES[1], 2),
        (b"\r\n".join(LINES), 3),
        (LINES[0], 1),
        (json.dumps(CHAIN[0].envelope(), indent=2).encode(), 1),
        (json.dumps([link.envelope() for link in CHAIN], indent=2).encode(), 3),
        (json.dumps([link.envelope() for link in CHAIN]).encode(), 3),
        (b"", 0),
        (b"\n \n", 0),
    ],
)
def test_every_form_gives_its_receipts(text, count):
    assert verified(text) == count


def test_a_damaged_first_line_is_still_a_line():
    text = b"\n".join([LINES[0][:-1], *LINES[1:]])
    assert [number for number, _ in items_of(io.BytesIO(text))] == [1, 2, 3]


def test_lines_are_numbered_as_an_editor_shows_them():
    text = LINES[0] + b"\n\n" + LINES[1]
    assert [number for number, _ in items_of(io.BytesIO(text))] == [1, 3]
