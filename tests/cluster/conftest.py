"""PostgreSQL and Redis for the tests of this folder."""

from collections.abc import Iterator

import pytest

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
