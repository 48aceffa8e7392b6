"""A chain outlives its keys: each new one is endorsed by the one before."""

import copy

import pytest

from brain_coord.receipts.history import HistoryError, endorse, first_key, publish, publish_all, trusted_keys
from brain_coord.receipts.signer import Signer

KEYS = [Signer.generate() for _ in range(3)]
CHAIN = KEYS[0].key_id
HISTORY = [
    first_key(KEYS[0], 1000.0),
    endorse(CHAIN, KEYS[0], KEYS[1], 2000.5),
    endorse(CHAIN, KEYS[1], KEYS[2], 3000.123),
]


def test_a_published_history_leads_from_the_first_key_to_the_newest():
    published = publish(HISTORY)
    assert published["chain"] == CHAIN
    assert published["current"] == KEYS[2].key_id
    assert trusted_keys(published) == {signer.key_id: signer.public_key for signer in KEYS}


def test_each_key_is_published_behind_the_one_that_endorsed_it_though_the_clock_was_set_back():
    first = first_key(KEYS[0], 5000.0)
    newer = endorse(CHAIN, KEYS[0], KEYS[1], 4000.0)
    newest = endorse(CHAIN, KEYS[1], KEYS[2], 3000.0)
    published = publish([newest, newer, first])
    assert published["current"] == KEYS[2].key_id
    assert list(trusted_keys(published)) == [signer.key_id for signer in KEYS]


def test_histories_of_several_chains_are_published_apart():
    other = first_key(Signer.generate(), 1.0)
    assert [history["chain"] for history in publish_all([*HISTORY, other])] == [CHAIN, other.chain]


def change(path, value):
    published = copy.deepcopy(publish(HISTORY))
    *way, last = path
    target = published
    for step in way:
        target = target[step]
    target[last] = value
    return published


@pytest.mark.parametrize(
    "published",
    [
        change(("keys", 1, "from"), "2020-01-01T00:00:00.000Z"),
        change(("keys", 1, "endorsement"), "AA=="),
        change(("keys", 1, "endorsement"), None),
        change(("keys", 1, "endorsed_by"), KEYS[2].key_id),
        change(("keys", 1, "public_key"), publish([first_key(Signer.generate(), 0.0)])["keys"][0]["public_key"]),
        change(("keys", 1, "public_key"), "no base64"),
        change(("chain",), "0" * 16),
        change(("keys",), []),
        change(("keys",), None),
        None,
        [],
        {"chain": CHAIN},
    ],
    ids=[f"case {number}" for number in range(12)],  # keys are random, and parallel workers must name cases alike
)
def test_a_history_that_does_not_hold_together_is_refused(published):
    with pytest.raises(HistoryError):
        trusted_keys(published)


def test_a_stranger_cannot_add_a_key():
    stranger = Signer.generate()
    forged = endorse(CHAIN, stranger, Signer.generate(), 4000.0)
    with pytest.raises(HistoryError, match="not in the history"):
        trusted_keys(publish([*HISTORY, forged]))


def test_until_is_published_when_a_key_has_ended():
    ended = publish([first_key(KEYS[0], 0.0)])
    assert ended["keys"][0]["until"] is None
