"""Receipts for a spreadsheet."""

import csv

from brain_coord.receipts.canonical import canonical
from brain_coord.receipts.chain import ChainHead, seal
from brain_coord.receipts.columns import COLUMNS, csv_head, csv_row
from brain_coord.receipts.signer import Signer
from tests.support.receipts import draft, sealed_chain


def rows_of(*links):
    return list(csv.DictReader([csv_head(), *map(csv_row, links)]))


def one(**changes):
    return seal(ChainHead("c" * 16), [canonical(draft(1, **changes).body())], Signer.generate())[0]


def test_each_receipt_is_a_row_under_the_heads():
    chain, _ = sealed_chain(3)
    rows = rows_of(*chain)
    assert [row["seq"] for row in rows] == ["1", "2", "3"]
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["id"] == "r-00000001"
    assert rows[0]["first_output_ms"] == "41.25"


def test_what_is_unknown_is_an_empty_cell():
    (row,) = rows_of(one(price=None, node_id=None))
    assert row["amount_usd"] == ""
    assert row["node"] == ""


def test_a_model_name_cannot_become_a_formula():
    (row,) = rows_of(one(model='=HYPERLINK("http://x","y")'))
    assert row["model"].startswith("'=")


def test_a_damaged_receipt_is_a_row_that_says_so_in_its_place():
    whole, broken, last = sealed_chain(3)[0]
    rows = rows_of(whole, broken._replace(body=broken.body[:-2]), last)
    assert [(row["seq"], row["id"], row["error"]) for row in rows] == [
        ("1", "r-00000001", ""),
        ("2", "", "receipt_damaged"),
        ("3", "r-00000003", ""),
    ]
    assert (rows[1]["chain"], rows[1]["hash"]) == (broken.chain, broken.hash.hex())


def test_quotes_commas_and_line_ends_stay_within_their_cell():
    (row,) = rows_of(one(model='a,"b"\nc'))
    assert row["model"] == 'a,"b"\nc'
