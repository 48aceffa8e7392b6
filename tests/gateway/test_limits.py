"""What one key may do, and what connections may cost: meters are pure, bounds are shown on the true server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.limits import KEYS_KEPT, KeyMeters, PlanLimits, duration
from brain_coord.routing.vocabulary import Plan

FREE = PlanLimits(requests_per_min=60, concurrent=3, queue_share=0.25)
PAID = PlanLimits(requests_per_min=600, concurrent=100, queue_share=1.0)
CALLER = Caller("k-1", Plan.FREE)


def meters() -> KeyMeters:
    return KeyMeters({Plan.FREE: FREE, Plan.PAID: PAID})


def headers_of(pairs) -> dict[str, str]:
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in pairs}


def refusal(book: KeyMeters) -> ApiError:
    with pytest.raises(ApiError) as refused:
        book.admit(CALLER, 0.0)
    return refused.value


def test_every_answer_says_what_is_left_as_openai_does():
    permit = meters().admit(CALLER, 0.0)
    assert headers_of(permit.headers) == {"limit-requests": "60", "remaining-requests": "59", "reset-requests": "1s"}


def test_requests_come_back_steadily():
    book = meters()
    for _ in range(60):
        book.admit(CALLER, 0.0).release()
    with pytest.raises(ApiError) as refused:
        book.admit(CALLER, 0.0)
    error = refused.value
    assert (error.status, error.code, error.retry_after_s) == (429, "rate_limited", 1)
    assert error.message == "this key's 60 requests a minute are used up; try again in 1 s"
    assert headers_of(error.headers) == {"limit-requests": "60", "remaining-requests": "0", "reset-requests": "1m0s"}
    book.admit(CALLER, 1.0).release()
    with pytest.raises(ApiError):
        book.admit(CALLER, 1.5)


def test_a_refused_request_uses_nothing_up():
    book = meters()
    for _ in range(60):
        book.admit(CALLER, 0.0).release()
    for _ in range(1000):
        with pytest.raises(ApiError):
            book.admit(CALLER, 0.5)
    book.admit(CALLER, 1.0).release()


def test_so_many_at_a_time_and_the_place_is_free_at_any_end():
    book = meters()
    permits = [book.admit(CALLER, 0.0) for _ in range(3)]
    assert refusal(book).message == "this key's 3 requests at a time are running; try again in 1 s"
    permits[0].release()
    permits[0].release()
    book.admit(CALLER, 0.0)
    assert refusal(book).message == "this key's 3 requests at a time are running; try again in 1 s"


def test_keys_and_plans_do_not_share():
    book = meters()
    for _ in range(3):
        book.admit(CALLER, 0.0)
    book.admit(Caller("k-2", Plan.FREE), 0.0)
    for _ in range(50):
        book.admit(Caller("k-3", Plan.PAID), 0.0)
    assert book.running == 54


def test_a_new_plan_holds_at_once_for_keys_that_are_running():
    book = meters()
    permits = [book.admit(CALLER, 0.0) for _ in range(3)]
    book.plans = {Plan.FREE: PlanLimits(10, 2, 0.5), Plan.PAID: PAID}
    assert "2 requests at a time" in refusal(book).message
    for permit in permits:
        permit.release()
    assert headers_of(book.admit(CALLER, 0.0).headers)["remaining-requests"] == "9"
    assert book.running == 1


def test_keys_that_are_idle_are_forgotten_and_those_that_run_are_not():
    book = meters()
    running = book.admit(Caller("busy", Plan.FREE), 0.0)
    for number in range(KEYS_KEPT):
        book.admit(Caller(f"k-{number}", Plan.FREE), 0.0).release()
    for number in range(1000):
        book.admit(Caller(f"later-{number}", Plan.FREE), 120.0).release()
    assert len(book) <= KEYS_KEPT + 1
    assert book.running == 1
    running.release()
    assert book.running == 0


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200))
def test_no_pattern_gets_more_than_the_burst_and_the_rate(steps):
    book, now, admitted, running = meters(), 0.0, 0, []
    for later, ends in steps:
        now += later
        if ends and running:
            running.pop().release()
        try:
            running.append(book.admit(CALLER, now))
            admitted += 1
        except ApiError as error:
            assert error.retry_after_s >= 1
        assert 0 <= book.running == len(running) <= FREE.concurrent
        assert admitted <= FREE.requests_per_min + now * FREE.requests_per_min / 60 + 1e-6
    for permit in running:
        permit.release()
    assert book.running == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (8.64, "8.7s"),
        (59.99, "60s"),
        (90, "1m30s"),
        (360, "6m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("share", "limit", "places"), [(0.5, 10, 5), (0.01, 10, 1), (1.0, 256, 256)])
def test_a_key_may_fill_its_share_of_the_queue_and_at_least_one_place(share, limit, places):
    assert PlanLimits(1, 1, share).places(limit) == places
