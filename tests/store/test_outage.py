"""An outage: when to try again, and what is told about it."""

from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.outage import Outage

DOWN = StoreUnavailable("database_down", "it is away", "Wait")


def outage(told=None):
    return Outage(1.0, 4.0, (told if told is not None else []).append)


def test_the_pause_grows_with_every_failed_try_up_to_a_limit():
    gone = outage()
    gone.begins(DOWN, 100.0)
    assert gone.wait_s(100.0) == 1.0
    for pause in (2.0, 4.0, 4.0):
        gone.goes_on(DOWN, 200.0)
        assert gone.wait_s(200.0) == pause
    assert gone.wait_s(300.0) == 0.0


def test_requests_that_keep_failing_do_not_put_off_the_next_try():
    gone = outage()
    gone.begins(DOWN, 100.0)
    gone.begins(DOWN, 100.9)
    assert gone.wait_s(101.0) == 0.0


def test_the_pause_is_short_again_only_when_all_is_well():
    gone = outage()
    gone.begins(DOWN, 0.0)
    gone.ends()
    gone.begins(DOWN, 0.0)  # the database answered, but took no write
    assert gone.wait_s(0.0) == 2.0
    gone.ends()
    gone.all_is_well()
    gone.begins(DOWN, 0.0)
    assert gone.wait_s(0.0) == 1.0


def test_an_error_of_another_kind_is_an_outage_too():
    gone = outage()
    gone.begins(RuntimeError("odd"), 0.0)
    assert "odd" in gone.cause.message


def test_changes_of_the_state_are_told_and_nothing_else():
    told = []
    gone = outage(told)
    gone.begins(DOWN, 0.0)
    gone.receipts_are("spooling", DOWN, 1, 10.0)
    gone.receipts_are("spooling", DOWN, 2, 20.0)
    gone.receipts_are("refusing", DOWN, 2, 30.0)
    gone.ends()
    gone.all_is_well()
    assert [health.state for health in told] == ["spooling", "refusing", "ok"]
    assert told[1].since_s == 10.0
    assert (gone.health.state, gone.health.reason) == ("ok", None)


def test_while_the_spool_is_written_the_reason_for_it_stays():
    gone = outage()
    gone.begins(DOWN, 0.0)
    gone.receipts_are("spooling", DOWN, 1, 10.0)
    gone.ends()
    gone.receipts_are("spooling", StoreUnavailable("database_down", "the spool is being written", "Try again"), 2, 11.0)
    assert gone.health.reason == str(DOWN)
    gone.receipts_are("refusing", StoreUnavailable("spool_full", "the spool is full", "Free space"), 2, 12.0)
    assert "spool is full" in gone.health.reason
