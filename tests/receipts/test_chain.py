"""Sealing: order, links, and one signature for many."""

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.receipts import merkle
from brain_coord.receipts.chain import GENESIS, ChainHead, Sealed, seal
from brain_coord.receipts.signer import Signer
from brain_coord.receipts.verify import verify_envelope, verify_lines
from tests.support.receipts import draft, sealed_chain


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_batches_of_any_size_make_one_chain(sizes):
    signer = Signer.generate()
    head, chain = ChainHead(signer.key_id), []
    for size in sizes:
        chain += seal(head, [b'{"id":"r"}'] * size, signer)
        head = chain[-1].head
    found = verify_lines([link.line() for link in chain])
    assert (found.bad, found.receipts, found.gaps) == (None, sum(sizes), 0)
    assert [link.seq for link in chain] == list(range(1, sum(sizes) + 1))


def test_the_first_link_continues_from_nothing_and_each_other_from_the_one_before():
    chain, _ = sealed_chain(5, batch=2)
    assert chain[0].prev == GENESIS
    assert [link.prev for link in chain[1:]] == [link.hash for link in chain[:-1]]


def test_a_link_alone_needs_no_path_and_a_batch_shares_a_signature():
    chain, _ = sealed_chain(4, batch=3)
    assert chain[3].path == b""
    assert len({link.signature for link in chain[:3]}) == 1
    assert all(link.path for link in chain[:3])


def test_each_link_of_a_batch_verifies_without_the_others():
    chain, _ = sealed_chain(7, batch=7)
    for link in chain:
        assert verify_envelope(link.envelope()).seq == link.seq


def test_sealing_nothing_gives_nothing():
    assert seal(ChainHead("c"), [], Signer.generate()) == []


def test_an_envelope_line_is_canonical_json():
    for link in sealed_chain(3, batch=3)[0]:
        assert rfc8785.dumps(orjson.loads(link.line())) == link.line()


def test_a_line_reads_back_as_the_receipt_it_was():
    for link in sealed_chain(3, batch=3)[0]:
        assert Sealed.parse(link.line()) == link


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b'{"body":{}', b'{"body":{},"chain":1}'])
def test_what_is_no_envelope_does_not_read(line):
    with pytest.raises(ValueError):
        Sealed.parse(line)


def test_a_changed_line_does_not_read():
    line = sealed_chain(1)[0][0].line()
    with pytest.raises(ValueError, match="changed"):
        Sealed.parse(line.replace(b'"plan":"free"', b'"plan":"paid"'))


def test_an_unsealed_receipt_says_what_it_is_looked_up_by():
    receipt = sealed_chain(1)[0][0].unsealed()
    expected = draft(1)
    assert (receipt.receipt_id, receipt.key_id, receipt.node_id) == (
        expected.receipt_id,
        expected.key_id,
        expected.node_id,
    )
    assert receipt.created_s == expected.time_s


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=33))
def test_every_path_of_a_tree_leads_to_its_root(leaves):
    root, paths = merkle.grow(leaves)
    for leaf, path in zip(leaves, paths, strict=True):
        assert merkle.climb(leaf, merkle.steps_of(path)) == root


def test_a_malformed_step_leads_nowhere():
    with pytest.raises(ValueError, match="step"):
        merkle.climb(bytes(32), [b"X" + bytes(32)])
