"""What holds for every test: property tests have no time limit of their own, and CI tries the same examples each time."""

import asyncio
import os

import uvloop
from hypothesis import settings

# A loaded machine is no fault of the code. And what lands must not depend on chance: new examples are for whoever works.
settings.register_profile("unhurried", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhurried")


def pytest_asyncio_loop_factories(item):
    """The node's tests run on the event loop that the node runs on."""
    if "tests/node/" in item.nodeid:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
