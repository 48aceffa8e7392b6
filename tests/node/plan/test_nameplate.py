"""The size a card is sold under, against the bytes it reports."""

import pytest

from brain_node.plan.nameplate import class_gb, meets_class, nameplate_gb

MIB = 1 << 20

pytestmark = pytest.mark.case("A-06")


@pytest.mark.parametrize(
    ("total_mib", "size_gb"),
    [
        (4096, 4),
        (6144, 6),
        (8188, 8),
        (8192, 8),
        (11264, 11),
        (12282, 12),
        (15109, 16),
        (16303, 16),
        (16384, 16),
        (20475, 20),
        (22919, 24),
        (23028, 24),
        (24219, 24),
        (24564, 24),
        (32607, 32),
        (40960, 40),
        (46068, 48),
        (48601, 48),
        (49140, 48),
        (81559, 80),
        (81920, 80),
        (97871, 96),
        (143771, 141),
    ],
)
def test_a_card_is_called_by_the_size_it_is_sold_under(total_mib, size_gb):
    assert nameplate_gb(total_mib * MIB) == size_gb


@pytest.mark.parametrize(
    ("total_mib", "required_gb", "meets"),
    [
        (8188, 8, True),
        (16303, 16, True),
        (24564, 24, True),
        (23028, 24, True),
        (22919, 24, True),
        (49140, 48, True),
        (8188, 16, False),
        (16303, 24, False),
        (20475, 24, False),
        (24564, 48, False),
    ],
)
def test_a_requirement_written_as_a_card_size_is_met_by_every_card_of_that_size(total_mib, required_gb, meets):
    assert meets_class(total_mib * MIB, required_gb * 1024 * MIB) is meets


def test_a_requirement_in_bytes_is_not_rounded_up_to_a_size():
    assert meets_class(22919 * MIB, 21762 * MIB)
    assert not meets_class(22919 * MIB, 23000 * MIB)


@pytest.mark.parametrize(
    ("required_mib", "size_gb"),
    [(8192, 8), (24576, 24), (21762, 24), (7041, 8), (17598, 20), (23000, 32), (10**9, None)],
)
def test_the_class_of_a_model_is_the_smallest_size_of_which_every_card_can_serve_it(required_mib, size_gb):
    assert class_gb(required_mib * MIB) == size_gb
