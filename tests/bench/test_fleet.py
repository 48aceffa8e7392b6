"""A small simulated fleet through every step of the fleet bench: joined, routed, dead, silent, back after a restart."""

import pytest

from scripts.bench.fleet_run import FleetBench
from scripts.bench.systems import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_fleet_comes_and_goes_and_every_request_is_answered():
    with Stage(print) as stage:
        results = FleetBench(stage, 120, print).run(rest_s=2.0)
    assert [result.name for result in results if result.good is False] == []
    assert {"killed node (socket closed) noticed", "silent node (half-open) noticed"} <= {each.name for each in results}
