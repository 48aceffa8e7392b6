"""The breaker of a target, and what its health is made of: pure, with time as an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.breaker import Breaker, BreakerRules, BreakerState
from brain_coord.classes.health import BUSY_MAX_S, LACKS_S, MISCONFIGURED_S, HealthBook

RULES = BreakerRules(faults=3, first_open_s=4.0, max_open_s=20.0, probe_s=10.0)
MIDDLE = 0.5
"""A spread that leaves the open time as it is."""


def fail(breaker: Breaker, now: float, times: int = 1, **more) -> bool:
    opened = False
    for _ in range(times):
        ticket = breaker.begin(now)
        assert ticket is not None
        opened = breaker.failed(ticket, now, "node_lost", spread=MIDDLE, **more)
    return opened


def opened_at(now: float) -> Breaker:
    breaker = Breaker(RULES)
    assert fail(breaker, now, 3)
    return breaker


def test_three_faults_in_a_row_open_it():
    breaker = Breaker(RULES)
    assert not fail(breaker, 0.0, 2)
    assert breaker.state(0.0) is BreakerState.CLOSED
    assert fail(breaker, 0.0)
    assert breaker.state(0.0) is BreakerState.OPEN
    assert breaker.begin(0.0) is None
    assert breaker.cause == "node_lost"


def test_a_success_between_starts_the_count_again():
    breaker = Breaker(RULES)
    fail(breaker, 0.0, 2)
    breaker.succeeded(breaker.begin(0.0))
    assert not fail(breaker, 0.0, 2)


def test_half_open_lets_one_through_at_a_time():
    breaker = opened_at(0.0)
    assert breaker.begin(3.9) is None
    probe = breaker.begin(4.0)
    assert probe.probe
    assert breaker.state(4.0) is BreakerState.HALF_OPEN
    assert breaker.begin(4.0) is None
    assert breaker.succeeded(probe)
    assert breaker.state(4.0) is BreakerState.CLOSED
    assert breaker.begin(4.0) is not None


def test_each_further_pause_is_twice_as_long_up_to_the_longest():
    breaker, now, lengths = opened_at(0.0), 0.0, []
    for _ in range(5):
        lengths.append(breaker.reopens_at - now)
        now = breaker.reopens_at
        assert fail(breaker, now)
    assert lengths == [4.0, 8.0, 16.0, 20.0, 20.0]


def test_one_success_does_not_make_a_flapping_target_new_and_two_do():
    breaker = opened_at(0.0)
    breaker.succeeded(breaker.begin(4.0))
    fail(breaker, 5.0, 3)
    assert breaker.reopens_at - 5.0 == 8.0
    now = breaker.reopens_at
    breaker.succeeded(breaker.begin(now))
    breaker.succeeded(breaker.begin(now))
    assert breaker.pristine
    fail(breaker, now, 3)
    assert breaker.reopens_at - now == 4.0


def test_pauses_are_spread_so_that_targets_which_failed_together_are_not_probed_together():
    ends = set()
    for spread in (0.0, 0.5, 1.0):
        breaker = Breaker(BreakerRules(faults=1, first_open_s=4.0))
        breaker.failed(breaker.begin(0.0), 0.0, "x", spread=spread)
        ends.add(breaker.reopens_at)
    assert ends == {3.0, 4.0, 5.0}


def test_what_began_before_the_pause_neither_ends_nor_prolongs_it():
    breaker = Breaker(RULES)
    late = [breaker.begin(0.0) for _ in range(3)]
    fail(breaker, 0.0, 3)
    until = breaker.reopens_at
    assert not breaker.succeeded(late[0])
    assert not breaker.failed(late[1], 1.0, "node_lost", spread=MIDDLE)
    breaker.dropped(late[2])
    assert breaker.reopens_at == until
    assert breaker.state(1.0) is BreakerState.OPEN


def test_faults_of_one_incident_count_once():
    breaker = Breaker(RULES)
    assert not fail(breaker, 0.0, 100, incident="the link of 12:00 broke")
    assert breaker.faults == 1
    assert not fail(breaker, 0.0, incident="the link of 12:01 broke")
    assert fail(breaker, 0.0, incident="the link of 12:02 broke")


def test_a_probe_that_told_nothing_gives_its_place_back():
    breaker = opened_at(0.0)
    breaker.dropped(breaker.begin(4.0))
    assert breaker.begin(4.0) is not None


def test_a_probe_that_never_reports_keeps_nobody_out_for_ever():
    breaker = opened_at(0.0)
    assert breaker.begin(4.0) is not None
    assert breaker.begin(13.9) is None
    assert breaker.begin(14.0) is not None


events = st.lists(
    st.tuples(
        st.sampled_from(["begin", "ok", "fault", "drop", "lose"]), st.floats(0, 30, allow_nan=False), st.floats(0, 1)
    ),
    max_size=120,
)


@given(events)
def test_whatever_happens_no_target_is_shut_out_for_ever(steps):
    breaker, now, running = Breaker(RULES), 0.0, []
    for what, later, spread in steps:
        now += later
        if what == "begin" and (ticket := breaker.begin(now)) is not None:
            running.append(ticket)
        elif running and what != "begin":
            ticket = running.pop(int(spread * (len(running) - 1)))
            if what == "ok":
                breaker.succeeded(ticket)
            elif what == "fault":
                breaker.failed(ticket, now, "x", spread=spread)
            elif what == "drop":
                breaker.dropped(ticket)  # "lose": nobody ever reports
        if breaker.reopens_at is not None:
            assert breaker.reopens_at <= now + RULES.max_open_s * 1.25
        assert breaker.allows(now + RULES.max_open_s * 1.25 + RULES.probe_s)


def book_with(name: str = "N-1"):
    book, wakes = HealthBook(RULES), []
    book.on_change.append(wakes.append)
    return book, book.of(name), wakes


def test_waiting_requests_are_told_when_a_pause_will_end_and_when_it_has_ended():
    _, health, wakes = book_with()
    for _ in range(3):
        health.failed(health.breaker.begin(0.0), 0.0, "node_lost", spread=MIDDLE)
    assert wakes == [4.0]
    assert health.out(1.0) == "paused after 3 faults (node_lost), next try in 3 s"
    assert health.out_until(1.0) == 4.0
    probe = health.breaker.begin(4.0)
    assert health.out(4.0) == "paused after 3 faults (node_lost), one request is trying it"
    health.succeeded(probe)
    assert wakes == [4.0, 0.0]
    assert health.out(4.0) is None


def test_a_busy_target_is_asked_last_for_as_long_as_it_said_within_bounds():
    _, health, _ = book_with()
    health.busy(0.0, 5.0)
    assert health.out(0.0) is None
    assert health.last(0.0) == "said it is busy for another 5 s"
    assert health.last(5.0) is None
    health.busy(0.0, 86_400.0)
    assert health.last(BUSY_MAX_S) is None
    health.busy(0.0, None)
    assert health.last(0.5) is not None
    assert health.last(1.0) is None


def test_a_client_alone_cannot_take_a_target_out_with_a_provoked_403():
    _, health, _ = book_with()
    health.refused_us(0.0, 403, ("/v1/chat/completions", "m"))
    assert health.out(0.0) is None
    assert health.last(0.0) == "misconfigured: answered 403"
    health.refused_us(1.0, 401)  # the coordinator's own request was refused as well
    assert health.out(1.0) == "misconfigured: answers 403, also to the coordinator's own request"
    assert health.out(1.0 + MISCONFIGURED_S) is None  # one request may see whether it was mended
    health.succeeded(health.breaker.begin(62.0))
    assert health.last(62.0) is None


def test_a_404_is_about_one_model_on_one_route():
    _, health, _ = book_with()
    asked = ("/v1/embeddings", "m")
    health.refused_us(0.0, 404, asked)
    assert health.last(1.0) is None
    assert health.last(1.0, asked) == "misconfigured: answered 404 for m on /v1/embeddings"
    assert health.last(1.0, ("/v1/chat/completions", "m")) is None
    assert health.last(LACKS_S, asked) is None
    health.refused_us(0.0, 404, asked)
    health.succeeded(health.breaker.begin(1.0), asked)
    assert health.last(1.0, asked) is None


def test_a_success_has_something_to_wipe_out_only_after_a_blemish_and_until_all_is_forgotten():
    _, health, _ = book_with()
    asked, running = ("/v1/embeddings", "m"), health.breaker.begin(0.0)
    health.succeeded(running)
    assert not health.blemished
    health.failed(health.breaker.begin(1.0), 1.0, "node_lost", spread=MIDDLE)
    health.refused_us(1.0, 404, asked)
    health.busy(1.0, 5.0)
    assert health.blemished
    health.succeeded(running, ("/v1/chat/completions", "m"))
    assert (health.breaker.faults, health.last(1.0), health.blemished) == (0, None, True)
    health.succeeded(running, asked)
    assert (health.last(1.0, asked), health.blemished) == (None, False)
    for _ in range(3):
        health.failed(health.breaker.begin(2.0), 2.0, "node_lost", spread=MIDDLE)
    health.succeeded(health.breaker.begin(6.0))
    assert health.blemished, "its next pause would be a longer one"
    health.succeeded(health.breaker.begin(7.0))
    assert not health.blemished


def test_only_targets_in_trouble_are_looked_at():
    book, health, _ = book_with()
    book.of("N-2")
    assert list(book.in_trouble(0.0)) == []
    health.busy(0.0, 2.0)
    assert [each.name for each in book.in_trouble(1.0)] == ["N-1"]
    assert list(book.in_trouble(2.0)) == []


@pytest.mark.parametrize("how", ["busy", "dropped", "succeeded"])
def test_only_real_faults_feed_the_breaker(how):
    _, health, _ = book_with()
    for _ in range(50):
        ticket = health.breaker.begin(0.0)
        if how == "busy":
            health.busy(0.0, 1.0)
            health.dropped(ticket)
        else:
            getattr(health, how)(ticket)
    assert health.breaker.pristine
