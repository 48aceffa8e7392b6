"""Whatever is changed, dropped, swapped or forged in receipts is found, and the first bad link is named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.receipts.chain import ChainHead, seal
from brain_coord.receipts.signer import Signer
from brain_coord.receipts.verify import BadReceipt, parse, verify_envelope, verify_lines
from tests.support.receipts import sealed_chain

CHAIN, SIGNER = sealed_chain(6, batch=4)
LINES = [link.line() for link in CHAIN]


def envelope(number=0):
    return json.loads(LINES[number])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_one_flipped_byte_anywhere_is_found_and_named(data):
    number = data.draw(st.integers(0, len(LINES) - 1))
    at = data.draw(st.integers(0, len(LINES[number]) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(LINES[number])
    changed[at] ^= flip
    found = verify_lines([*LINES[:number], bytes(changed), *LINES[number + 1 :]])
    assert found.bad is not None, f"byte {at} of line {number + 1} ^ {flip:#x}"
    assert found.bad.line == number + 1
    assert found.receipts == number


def test_every_single_bit_of_a_receipt_counts():
    line = LINES[1]
    for at in range(len(line)):
        for bit in range(8):
            changed = bytearray(line)
            changed[at] ^= 1 << bit
            found = verify_lines([bytes(changed)])
            assert found.bad is not None, f"bit {bit} of byte {at}: {bytes(changed[max(0, at - 20) : at + 20])!r}"


def test_a_whole_chain_verifies():
    found = verify_lines(LINES)
    assert (found.receipts, found.gaps, found.bad) == (6, 0, None)
    assert found.signers == {SIGNER.key_id}
    assert (found.first[SIGNER.key_id].seq, found.last[SIGNER.key_id].seq) == (1, 6)


def test_a_part_of_a_chain_verifies_and_its_gaps_are_counted():
    found = verify_lines([LINES[1], LINES[2], LINES[5]])
    assert (found.receipts, found.gaps, found.bad) == (3, 1, None)


def test_empty_lines_do_not_matter():
    assert verify_lines([LINES[0], b"\n", LINES[1]]).receipts == 2


def test_two_chains_may_be_mixed():
    other = [link.line() for link in sealed_chain(2)[0]]
    found = verify_lines([LINES[0], other[0], LINES[1], other[1]])
    assert (found.receipts, found.bad, len(found.last)) == (4, None, 2)


@pytest.mark.parametrize(
    ("order", "code"), [([1, 0], "out_of_order"), ([0, 0], "out_of_order"), ([0, 2, 1], "out_of_order")]
)
def test_receipts_in_the_wrong_order_are_found(order, code):
    found = verify_lines([LINES[number] for number in order])
    assert found.bad.code == code
    assert found.bad.line == len(order)


def test_a_fork_is_found():
    fork = seal(ChainHead(SIGNER.key_id, 2, b"\1" * 32), [b'{"id":"other"}'], SIGNER)
    found = verify_lines([*LINES[:2], fork[0].line()])
    assert (found.bad.code, found.bad.line, found.bad.seq) == ("broken_link", 3, 3)


def test_a_first_link_that_names_a_predecessor_is_found():
    forged = seal(ChainHead(SIGNER.key_id, 0, b"\1" * 32), [b'{"id":"other"}'], SIGNER)
    assert verify_lines([forged[0].line()]).bad.code == "broken_link"


def test_a_chain_can_only_begin_under_the_key_it_is_named_after():
    stranger = Signer.generate()
    forged = seal(ChainHead(SIGNER.key_id), [b'{"id":"other"}'], stranger)
    assert verify_lines([forged[0].line()]).bad.code == "unknown_signer"


def test_a_forger_with_a_key_of_his_own_fails_against_the_given_keys():
    forged, _ = sealed_chain(2)
    assert verify_lines([link.line() for link in forged]).bad is None
    found = verify_lines([link.line() for link in forged], {SIGNER.key_id: SIGNER.public_key})
    assert found.bad.code == "unknown_signer"
    assert verify_lines(LINES, {SIGNER.key_id: SIGNER.public_key}).bad is None


@pytest.mark.parametrize(
    ("member", "value", "code"),
    [
        ("format", "brain-receipt-2", "unknown_format"),
        ("seq", True, "malformed"),
        ("seq", 0, "malformed"),
        ("seq", "1", "malformed"),
        ("seq", 1.5, "malformed"),
        ("chain", None, "malformed"),
        ("prev", "0" * 63, "malformed"),
        ("prev", 7, "malformed"),
        ("hash", "G" * 64, "malformed"),
        ("path", None, "malformed"),
        ("path", [7], "malformed"),
        ("path", ["X" + "0" * 64], "malformed"),
        ("path", ["L" + "0" * 64], "bad_signature"),
        ("signature", "AAAA", "malformed"),
        ("public_key", None, "malformed"),
        ("signer", "0" * 16, "signer_mismatch"),
        ("body", {"a": 2**60}, "malformed"),
        ("body", None, "hash_mismatch"),
    ],
)
def test_a_member_that_is_wrong_is_named_by_its_kind(member, value, code):
    with pytest.raises(BadReceipt) as bad:
        verify_envelope({**envelope(), member: value})
    assert bad.value.code == code


@pytest.mark.parametrize("member", sorted(envelope()))
def test_a_missing_member_is_found(member):
    rest = envelope()
    del rest[member]
    with pytest.raises(BadReceipt) as bad:
        verify_envelope(rest)
    assert bad.value.code == "malformed"


def test_an_added_member_is_found():
    with pytest.raises(BadReceipt):
        verify_envelope({**envelope(), "note": "hello"})


@pytest.mark.parametrize("value", [None, 7, "text", [], [1]])
def test_other_json_is_no_receipt(value):
    with pytest.raises(BadReceipt):
        verify_envelope(value)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":NaN}', "{", "[" * 100_000, b"\xff\xfe", "1" * 5000])
def test_json_that_two_readers_could_take_differently_is_refused(text):
    with pytest.raises(BadReceipt) as bad:
        parse(text)
    assert bad.value.code == "not_json"


def test_the_form_it_is_written_in_does_not_matter():
    spread = json.dumps(envelope(), indent=4, ensure_ascii=True)
    assert verify_envelope(parse(spread)).seq == 1


@pytest.mark.parametrize(
    "name", ["\x1b[2K\rgood: 9 receipts, signed by 0123456789abcdef", "a chain", "", "0123456789ABCDEF"]
)
def test_a_chain_is_named_like_a_key_or_is_none(name):
    (forged,) = seal(ChainHead(name), [b"{}"], SIGNER)
    found = verify_lines([forged.line() if name.isprintable() else json.dumps({**envelope(), "chain": name})])
    assert found.bad is not None
    assert (found.bad.code, found.bad.chain) == ("malformed", None)
