"""Ids of requests and receipts."""

import re

from brain_coord.gateway.ids import random_id, receipt_id_at

NOW_S = 1_760_000_000.0


def test_no_id_is_given_out_twice() -> None:
    assert len({random_id() for _ in range(2000)}) == 2000
    assert len({receipt_id_at(NOW_S) for _ in range(2000)}) == 2000


def test_a_receipt_id_keeps_its_length_and_alphabet_at_any_time() -> None:
    for time_s in (0.0, 0.9, NOW_S, 2.0**40, 2.0**60):
        assert re.fullmatch(r"r-[0-9a-f]{24}", receipt_id_at(time_s))


def test_receipt_ids_stand_in_the_order_of_their_times() -> None:
    ids = [receipt_id_at(NOW_S + step / 16) for step in range(200)]
    assert ids == sorted(ids)


def test_the_clock_gives_away_fewer_than_half_of_a_receipt_ids_digits() -> None:
    at_one_moment = [receipt_id_at(NOW_S) for _ in range(200)]
    assert len({each[:11] for each in at_one_moment}) == 1
    assert all(len({each[at] for each in at_one_moment}) > 1 for at in range(11, 26))
