"""CUDA's rules of visible devices, as a pure function."""

import pytest

from brain_node.gpu.visible import Device, ambiguous_order, visible_devices

A, B, C = "GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000"
SLICE_1, SLICE_2 = "MIG-cccc1111-0000", "MIG-dddd2222-0000"
PLAIN = [Device(A), Device(B), Device(C)]
SLICED = [Device(A), Device(None, slices=(SLICE_1, SLICE_2))]

pytestmark = pytest.mark.case("A-08")


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, (A, B, C)),
        ("", ()),
        ("1", (B,)),
        ("2,0", (C, A)),
        (" 2 , 0 ", (C, A)),
        ("0,9,1", (A,)),
        ("-1", ()),
        ("0,-1,1", (A,)),
        ("0,,1", (A,)),
        ("0,0", ()),
        ("0,1,0", ()),
        ("1gpu,2", (B, C)),
        (A, (A,)),
        (f"{C},{A}", (C, A)),
        ("GPU-b", (C,)),
        ("GPU-aaaa1", (A,)),
        ("GPU-aaaa", ()),
        ("GPU-", ()),
        (f"{B},GPU-ffff,{A}", (B,)),
        (f"{A},1", (A,)),
        (f"1,{A}", (B,)),
        (f"{A},{A}", ()),
        ("aaaa1111-0000", ()),
        ("all", ()),
        ("none", ()),
    ],
)
def test_a_list_shows_what_cuda_would(value, seen):
    assert visible_devices(PLAIN, value).uuids == seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, (A, SLICE_1, SLICE_2)),
        ("1", (SLICE_1,)),
        (SLICE_2, (SLICE_2,)),
        ("MIG-d", (SLICE_2,)),
        (f"{SLICE_1},{SLICE_2}", (SLICE_1, SLICE_2)),
        (f"{A},{SLICE_1}", (A,)),
        ("MIG-9", ()),
    ],
)
def test_slices_take_the_place_of_the_card_they_are_cut_from(value, seen):
    assert visible_devices(SLICED, value).uuids == seen


def test_a_lost_card_keeps_its_index():
    assert visible_devices([Device(None), Device(B)], "1,0").uuids == (B,)


def test_the_entry_that_ended_the_list_is_named():
    assert visible_devices(PLAIN, "0,9,1").stopped_at == "9"
    assert visible_devices(PLAIN, "0,1").stopped_at is None


@pytest.mark.parametrize(
    ("value", "names", "order", "unclear"),
    [
        ("0", ["Small", "Big"], None, True),
        ("0", ["Small", "Big"], "FASTEST_FIRST", True),
        ("0", ["Small", "Big"], "PCI_BUS_ID", False),
        ("0", ["Same", "Same"], None, False),
        (A, ["Small", "Big"], None, False),
    ],
)
def test_an_index_is_unclear_only_among_unlike_cards_in_cudas_default_order(value, names, order, unclear):
    assert ambiguous_order(visible_devices(PLAIN, value), names, order) is unclear
