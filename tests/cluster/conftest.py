"""PostgreSQL and Redis for the tests of this folder, and pairs of coordinators on them."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.postgres import PostgresServer
from tests.support.redis_server import RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="module")
def pair(tmp_path_factory, postgres) -> Iterator[Cluster]:
    """Two coordinators that the tests of a module share; none may be killed."""
    server = RedisServer()
    try:
        folder = tmp_path_factory.mktemp("cluster")
        with Cluster(folder, postgres.create_database(), server.start().url, ("a", "b"), more=QUIET + FEW) as cluster:
            cluster.wait_together()
            yield cluster
    finally:
        server.remove()


QUIET = """
[measure]
shadow_share = 0
canary_s = 0
"""

FEW = """
[plans.free]
requests_per_min = 5
"""


@pytest.fixture
async def key(pair) -> str:
    return await asyncio.to_thread(pair["a"].key, "paid")
