"""What our clock saw of a node."""

from brain_coord.fleet.measured import Measured
from brain_coord.measure.slots import REACHED
from brain_coord.measure.window import MedianWindow
from brain_coord.store.records import Benchmark


def lone(benchmark_tok_s=None, reached_tok_s=None):
    measured = Measured()
    if benchmark_tok_s is not None:
        measured.benchmarked(Benchmark("N-1", "m", benchmark_tok_s, 5.0, "PRO", "", 0.0))
    if reached_tok_s is not None:
        measured.decode_tok_s["m"] = MedianWindow.of([reached_tok_s] * REACHED, 0.0)
    return measured.lone_tok_s("m")


def test_a_benchmark_that_was_slowed_down_hides_nothing_of_a_nodes_lone_speed():
    assert lone(10.0, 100.0) == 100.0
    assert lone(100.0, 10.0) == 100.0
    assert lone(10.0) == 10.0
    assert lone(None, 10.0) == 10.0
    assert lone() is None


def test_a_few_fast_streams_are_no_lone_speed():
    measured = Measured()
    measured.decode_tok_s["m"] = MedianWindow.of([500.0] * (REACHED - 1), 0.0)
    assert measured.lone_tok_s("m") is None
