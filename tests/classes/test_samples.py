"""What a class says of itself: nothing before it was tried, then what its own requests showed."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.samples import SAMPLES, STEP, ClassSamples


def test_without_samples_everything_is_unknown():
    samples = ClassSamples()
    assert samples.estimates == (None, None, 0)


def test_a_failure_says_nothing_about_time():
    samples = ClassSamples()
    samples.failed()
    assert samples.estimates == (None, 0.0, 1)


ENDS = st.lists(st.none() | st.just("vectors") | st.floats(0, 1e6, allow_nan=False), max_size=SAMPLES)


@given(ENDS, ENDS)
def test_the_last_requests_count_whenever_they_are_looked_at(earlier, later):
    samples, ends = ClassSamples(), earlier + later
    for number, end in enumerate(ends, 1):
        if end is None:
            samples.failed()
        else:
            samples.completed(None if end == "vectors" else end)
        recent = ends[max(0, number - SAMPLES) : number]
        if number < SAMPLES or end is None:
            times = [each for each in recent if isinstance(each, float)]
            latency_ms = round(median(times), 3) if times else None
            reliability = round(sum(each is not None for each in recent) / len(recent), 6)
            assert samples.estimates == (latency_ms, reliability, len(recent))


def test_what_tells_no_time_counts_as_done_all_the_same():
    """A class that only makes vectors would come to 0 with its first failure."""
    samples = ClassSamples()
    for _ in range(9):
        samples.completed(None)
    samples.failed()
    assert samples.estimates == (None, 0.9, 10)


def test_a_full_window_moves_by_steps_and_with_every_failure():
    samples = ClassSamples()
    for _ in range(SAMPLES):
        samples.completed(100.0)
    before = samples.estimates
    for _ in range(STEP - 1):
        samples.completed(300.0)
    assert samples.estimates == before
    samples.failed()
    assert samples.estimates.reliability == round(1 - 1 / SAMPLES, 6)
    for _ in range(SAMPLES):
        samples.completed(300.0)
    assert samples.estimates.latency_ms == 300.0
