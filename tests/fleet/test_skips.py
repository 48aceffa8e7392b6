"""Why requests pass a node by."""

from brain_coord.fleet.skips import BUCKET_S, MOST_ASKS, OUTRANKED, WINDOW_S, Ask, SkipBook, SkipTally

CHAT = Ask("m")


def entered(book, reason=lambda ask: None):
    tally = SkipTally()
    book.enter(tally, reason)
    return tally


def test_what_was_asked_while_a_reason_held_is_charged_to_it():
    book = SkipBook()
    tally = entered(book, lambda ask: "offline")
    for _ in range(3):
        book.request(CHAT)
    book.turn(tally, 1.0, lambda ask: "degraded")
    for _ in range(2):
        book.request(CHAT)
    book.charge(tally, 2.0)
    assert tally.counts(2.0) == {"offline": 3, "degraded": 2}


def test_what_was_asked_before_it_came_is_none_of_its_business():
    book = SkipBook()
    book.request(CHAT)
    tally = entered(book, lambda ask: "offline")
    book.charge(tally, 1.0)
    assert tally.counts(1.0) == {}


def test_requests_it_got_are_no_skips_and_those_it_could_have_had_were_outranked():
    book = SkipBook()
    tally = entered(book)
    for _ in range(5):
        tally.taken[book.request(CHAT)] += 1
    for _ in range(2):
        book.request(CHAT)
    book.charge(tally, 1.0)
    assert tally.counts(1.0) == {OUTRANKED: 2}


def test_region_and_budget_are_judged_by_what_the_request_asked():
    book = SkipBook()
    tally = entered(book, lambda ask: "not in eu" if ask.region == "eu" else None)
    book.request(Ask("m", region="eu"))
    tally.taken[book.request(CHAT)] += 1
    book.charge(tally, 1.0)
    assert tally.counts(1.0) == {"not in eu": 1}


def test_only_the_last_hour_counts():
    tally = SkipTally()
    tally.add(0.0, "offline", 7)
    tally.add(BUCKET_S + 1, "degraded", 2)
    assert tally.counts(WINDOW_S + 1) == {"degraded": 2}


def test_a_client_that_varies_its_budget_costs_no_memory():
    book = SkipBook()
    for number in range(10 * MOST_ASKS):
        book.request(Ask("m", None, float(number)))
    assert len(book.asked) <= MOST_ASKS + 1
    assert sum(book.asked.values()) == 10 * MOST_ASKS
