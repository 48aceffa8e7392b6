"""Stores on SQLite and on a real PostgreSQL server, closed at the end of each test."""

import pytest

from brain_coord.store.store import Store, StoreOptions
from brain_coord.store.writer import WriterLimits
from tests.support.postgres import PostgresServer

PATIENT = StoreOptions(timeout_s=30.0)
"""For tests without faults: a loaded machine is not an outage."""
IMPATIENT = StoreOptions(timeout_s=1.0, writer=WriterLimits(retry_s=0.02, retry_max_s=0.05))
"""Gives up early and tries again soon: what a fault costs in production would only make tests slow."""


@pytest.fixture(scope="session")
def postgres():
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """The URL of an empty database, or `None` for one embedded in the data directory."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres").create_database()


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
async def open_store(data_dir):
    """Opens stores in the data directory of the test; a second call closes the first."""
    stores = []

    async def close():
        while stores:
            await stores.pop().close()

    async def opened(url=None, *, options=PATIENT, **more):
        await close()
        stores.append(await Store.open(data_dir, url, options=options, **more))
        return stores[-1]

    opened.close = close
    yield opened
    await close()


@pytest.fixture
async def store(open_store, url):
    return await open_store(url)
