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


@given(st.lists(st.none() | st.floats(0, 1e6, allow_nan=False), max_size=SAMPLES))
def test_the_last_requests_count_whenever_they_are_looked_at(ends):
    samples, outcomes, times = ClassSamples(), [], []
    for number, end in enumerate(ends):
        if end is None:
            samples.failed()
        else:
            samples.completed(end)
            times.append(end)
        outcomes.append(end is not None)
        if number % 7 == 0:
            recent = outcomes[-SAMPLES:]
            latency_ms = round(median(times[-SAMPLES:]), 3) if times else None
            assert samples.estimates == (latency_ms, round(sum(recent) / len(recent), 6), len(recent))


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
