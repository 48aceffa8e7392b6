"""What holds for every test: property tests have no time limit of their own, and CI tries the same examples each time."""

import asyncio
import os
import sys

import pytest
import uvloop
from hypothesis import settings

from tests.support import hung

# A loaded machine is no fault of the code. And what lands must not depend on chance: new examples are for whoever works.
settings.register_profile("unhurried", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhurried")


def pytest_asyncio_loop_factories(item):
    """The node's tests run on the event loop that the node runs on."""
    if "tests/node/" in item.nodeid:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


STDERR = pytest.StashKey()


def pytest_configure(config):
    """Keep the real stderr: while a test runs, what it prints is caught."""
    config.stash[STDERR] = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")


def pytest_timeout_set_timer(item, settings):
    """Take pytest-timeout's limits, and end what hangs in a way that no event loop swallows."""
    item.cancel_timeout = hung.end_after(settings.timeout, item.nodeid, item.config.stash[STDERR])
    return True
