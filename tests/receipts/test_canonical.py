"""The fast canonical form is the library's, byte for byte."""

from enum import Enum, StrEnum
from types import MappingProxyType

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.receipts.canonical import CanonicalError, canonical

SAFE = 2**53 - 1
numbers = st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


@given(values)
def test_it_is_the_reference_form_for_any_json_value(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(numbers)
def test_it_writes_every_number_as_the_reference_does(number):
    assert canonical([number]) == rfc8785.dumps([number])


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (1e-7, b"1e-7"),
        (0.00001, b"0.00001"),
        (0.000001, b"0.000001"),
        (1e21, b"1e+21"),
        (1e20, b"100000000000000000000"),
        (123456789012345.5, b"123456789012345.5"),
    ],
)
def test_numbers_where_json_writers_differ(number, written):
    assert canonical(number) == written


@pytest.mark.parametrize("beyond", ["\U00010000", "\U00040000", "\U00080000", "\U000c0000", "\U0010ffff"])
def test_keys_beyond_the_basic_plane_are_sorted_by_their_surrogates(beyond):
    value = {"\ue000": 1, beyond: 2, "a": 1e20}
    assert canonical(value) == rfc8785.dumps(value)
    assert canonical(value).index(beyond.encode()) < canonical(value).index("\ue000".encode())


@pytest.mark.parametrize("unknown", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_unknown(unknown):
    assert canonical({"a": unknown, "b": [unknown]}) == b'{"a":null,"b":[null]}'


def test_records_of_other_rooms_may_hold_tuples_mappings_and_enums():
    class Mode(StrEnum):
        AUTO = "AUTO"

    class Level(Enum):
        ONE = 1.0

    value = {"t": (1, (2.0,)), "m": MappingProxyType({"k": Mode.AUTO}), "e": Level.ONE}
    assert canonical(value) == b'{"e":1,"m":{"k":"AUTO"},"t":[1,[2]]}'


@pytest.mark.parametrize(
    "value", [{1: "a"}, {"a": 2**53}, {"a": -(2**53)}, {"a": "\ud800"}, {"a": object()}, {"a": b"bytes"}, {"a": {1, 2}}]
)
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(CanonicalError):
        canonical(value)


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(CanonicalError):
        canonical(loop)
