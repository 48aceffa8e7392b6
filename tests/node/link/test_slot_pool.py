"""How many slot connections are held."""

from hypothesis import given
from hypothesis import strategies as st

from brain_node.link.slot_pool import IDLE_S, SlotPool


def opened(pool: SlotPool, count: int, now: float = 0.0) -> None:
    for slot in range(pool.open + 1, pool.open + 1 + count):
        pool.opened(slot, now)


def test_a_new_session_opens_its_spares():
    assert SlotPool(slots=8, spare=2).to_open() == 2


def test_a_job_makes_room_for_the_next():
    pool = SlotPool(slots=8, spare=2)
    opened(pool, 2)
    pool.took_job(1)
    assert pool.to_open() == 1


def test_never_more_than_the_slots_offered():
    pool = SlotPool(slots=3, spare=2)
    opened(pool, 3)
    for slot in (1, 2, 3):
        pool.took_job(slot)
    assert pool.to_open() == 0


def test_the_coordinator_may_ask_for_more_within_the_slots():
    pool = SlotPool(slots=8, spare=2)
    opened(pool, 2)
    pool.ask(4)
    assert pool.to_open() == 4
    pool.opening = 4
    assert pool.to_open() == 0
    pool.ask(100)
    assert pool.to_open() == 2


def test_what_idles_above_the_wanted_number_is_closed_after_a_while_oldest_first():
    pool = SlotPool(slots=8, spare=2)
    opened(pool, 4, now=0.0)
    assert pool.to_close(IDLE_S - 1) == []
    assert pool.next_close_at() == IDLE_S
    assert pool.to_close(IDLE_S) == [1, 2]


def test_a_slot_that_just_worked_is_not_the_one_closed():
    pool = SlotPool(slots=8, spare=1)
    opened(pool, 2)
    pool.took_job(1)
    pool.idle(1, 50.0)
    assert pool.to_close(IDLE_S) == [2]


def test_fewer_slots_offered_close_idle_ones_at_once_and_never_a_busy_one():
    pool = SlotPool(slots=8, spare=4)
    opened(pool, 4)
    pool.took_job(1)
    pool.slots = 0
    assert pool.to_close(0.0) == [2, 3, 4]


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "job", "idle", "closed", "ask", "time"]), st.integers(1, 6)), max_size=60
    )
)
def test_whatever_happens_the_counts_stay_sound(events):
    pool, now, next_slot = SlotPool(slots=4, spare=2), 0.0, 100
    for kind, n in events:
        idle, active = list(pool.idle_since), sorted(pool.active)
        if kind == "open" and pool.to_open():
            next_slot += 1
            pool.opened(next_slot, now)
        elif kind == "job" and idle:
            pool.took_job(idle[n % len(idle)])
        elif kind == "idle" and active:
            pool.idle(active[n % len(active)], now)
        elif kind == "closed" and (idle or active):
            pool.closed((idle + active)[n % len(idle + active)])
        elif kind == "ask":
            pool.ask(n)
        else:
            now += 10.0 * n
            for slot in pool.to_close(now):
                assert slot not in pool.active
                pool.closed(slot)
        assert pool.open <= 4
        assert not pool.active & pool.idle_since.keys()
        assert pool.to_open() <= 4 - pool.open
