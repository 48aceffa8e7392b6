"""Limits for one network address."""

import pytest

from brain_coord.fleet.addresses import DAY_S, REMEMBERED, AddressBook, AddressLimits, network_of

HERE = "203.0.113.7"
LIMITS = AddressLimits(sessions=2, new_ids_a_day=3, attempts_a_minute=4)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (HERE, HERE),
        ("::ffff:203.0.113.7", HERE),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
    ],
)
def test_one_place_is_an_ipv4_address_or_an_ipv6_64(address, network):
    assert network_of(address) == network


def test_so_many_sessions_and_no_more_until_one_ends():
    book = AddressBook(LIMITS)
    for node in ("a", "b"):
        assert book.admit(HERE, node, 0.0, known=True) is None
        book.joined(HERE, node, 0.0, known=True)
    assert "2 nodes are connected" in book.admit(HERE, "c", 0.0, known=True)
    assert book.admit(HERE, "a", 0.0, known=True) is None, "a reconnect is no further node"
    assert book.admit("198.51.100.1", "c", 0.0, known=True) is None
    book.left(HERE, "a")
    assert book.admit(HERE, "c", 0.0, known=True) is None


def test_a_reconnect_whose_old_session_ends_late_counts_right():
    book = AddressBook(LIMITS)
    book.joined(HERE, "a", 0.0, known=True)
    book.joined(HERE, "a", 1.0, known=True)
    book.left(HERE, "a")
    assert book.view(2.0)[0]["connected"] == ["a"]
    book.left(HERE, "a")
    assert book.view(2.0)[0]["connected"] == []


def test_so_many_new_ids_a_day():
    book = AddressBook(LIMITS)
    for number in range(3):
        assert book.admit(HERE, f"n{number}", 0.0, known=False) is None
        book.joined(HERE, f"n{number}", 0.0, known=False)
        book.left(HERE, f"n{number}")
    assert "3 new nodes" in book.admit(HERE, "n9", 1.0, known=False)
    assert book.admit(HERE, "n9", 1.0, known=True) is None
    assert book.admit(HERE, "n9", DAY_S + 1, known=False) is None


def test_so_many_handshakes_a_minute():
    book = AddressBook(LIMITS)
    assert [book.attempt(HERE, 0.0) for _ in range(4)] == [None] * 4
    assert "4 handshakes" in book.attempt(HERE, 1.0)
    assert book.attempt(HERE, 61.0) is None


def test_loopback_is_the_operators_own_machine():
    book = AddressBook(LIMITS)
    for number in range(50):
        assert book.attempt("127.0.0.1", 0.0) is None
        assert book.admit("::1", f"n{number}", 0.0, known=False) is None
    assert AddressBook(AddressLimits(sessions=0, exempt_loopback=False)).admit("127.0.0.1", "a", 0.0, known=True)


def test_the_operators_view_has_the_fullest_address_first():
    book = AddressBook()
    book.joined("198.51.100.1", "z", 0.0, known=False)
    for node in "ab":
        book.joined(HERE, node, 0.0, known=False)
    view = book.view(5.0)
    assert [row["address"] for row in view] == [HERE, "198.51.100.1"]
    assert view[0]["connected"] == ["a", "b"]
    assert view[0]["new_ids_last_day"] == 2


def test_a_scan_from_everywhere_costs_bounded_memory():
    book = AddressBook()
    book.joined(HERE, "a", 0.0, known=True)
    for number in range(REMEMBERED + 100):
        book.attempt(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1.0)
    view = book.view(1.0)
    assert len(view) <= REMEMBERED
    assert view[0]["connected"] == ["a"]
