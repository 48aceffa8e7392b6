"""The bench end to end, short: how the coordinator and a node compare with their peers in one run on one machine.

Only ratios are asserted, with margins wide enough for a busy machine; `scripts/bench/run` is for figures.
"""

from collections.abc import Iterator

import pytest

from scripts.bench.measure import Sample, at_rest, measure
from scripts.bench.systems import Stage, System
from scripts.bench.workloads import WORKLOADS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHORT = next(workload for workload in WORKLOADS if workload.name == "short")
LONG = next(workload for workload in WORKLOADS if workload.name == "long-100")
REPEATS = 3

LEAST_OF_LITELLM = 20.0
LEAST_OF_VLLM_ROUTER = 0.15
"""0.5 to 0.57 was measured on a quiet machine. Where five times as much wants to run as can, Python loses more than Rust: up to two
thirds of that."""


@pytest.fixture(scope="module")
def systems() -> Iterator[dict[str, System]]:
    with Stage(print) as stage:
        yield {system.name: system for system in stage.systems(["ours", "vllm-router", "litellm"])}


def samples(systems: dict[str, System], names: list[str], workload, window_s: float) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {name: [] for name in names}
    for _ in range(REPEATS):
        for name in names:
            found[name].append(measure(systems[name], systems["direct"], workload, 1.0, window_s))
            at_rest(systems[name], systems["direct"])
    return found


def best(own: list[Sample], figure: str) -> float:
    """The best of the repeats: what disturbs a machine only ever takes away."""
    return max(float(getattr(sample, figure)) for sample in own)


def test_short_streams_leave_litellm_far_behind_and_vllm_router_within_reach(systems):
    found = samples(systems, ["ours", "vllm-router", "litellm"], SHORT, 3.0)
    ours = best(found["ours"], "requests")
    assert not any(sample.errors for sample in found["ours"])
    assert ours >= LEAST_OF_LITELLM * best(found["litellm"], "requests")
    assert ours >= LEAST_OF_VLLM_ROUTER * best(found["vllm-router"], "requests")


def test_a_hundred_paced_streams_arrive_whole_and_in_time(systems):
    found = samples(systems, ["ours", "vllm-router"], LONG, 2.0)
    assert not any(sample.errors for sample in found["ours"])
    assert best(found["ours"], "events") >= 0.6 * best(found["vllm-router"], "events")
