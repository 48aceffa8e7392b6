"""The store on the event loop: opening, closing, reads on a few threads, writes through the writer."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection

from brain_coord.store import api_keys
from brain_coord.store.chain_end import ChainEnd
from brain_coord.store.database import Database, connect, open_database
from brain_coord.store.key_cache import KeyCache
from brain_coord.store.ledger import Ledger, OnFailure
from brain_coord.store.lock import lock_data_dir
from brain_coord.store.records import StoreHealth
from brain_coord.store.schema import upgrade
from brain_coord.store.signing import open_signer
from brain_coord.store.spool import Spool
from brain_coord.store.watchdog import Watchdog
from brain_coord.store.writer import Writer, WriterLimits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How the store behaves; every field has a good default."""

    on_store_failure: OnFailure = "spool"
    """While the database is away, keep receipts on disk and write them later (`spool`), or record none (`refuse`)."""
    timeout_s: float = 3.0
    """Longest wait for the database; after it counts as away."""
    spool_limit_bytes: int = 1 << 30
    """Size at which the spool refuses more receipts."""
    receipts_days: float = 400.0
    """For how long receipts are kept, in days; 0 for ever."""
    key_fresh_s: float = 1.0
    """How long a key revoked in another process may go on working."""
    readers: int = 4
    """Reads at once."""
    writer: WriterLimits = field(default_factory=WriterLimits)
    on_health: Callable[[StoreHealth], None] | None = None
    """Called on the event loop when `Store.health` changes its state: for the log and the metrics."""
    clock: Callable[[], float] = time.time
    """Wall clock for labels."""


class StoreCore:
    """Opening, closing, and running functions on connections; `Store` adds what they are for."""

    def __init__(self, opened: "_Opened", options: StoreOptions) -> None:
        """Use `open`."""
        self.chain = opened.ledger.chain if opened.ledger else None
        """Name of the receipt chain; `None` when opened without one."""
        self._database = database = opened.database
        self._watchdog = watchdog = Watchdog(options.timeout_s)
        self._ledger = ledger = opened.ledger
        self._lock = opened.lock
        self._clock = options.clock
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(options.readers, thread_name_prefix="store-reader")
        self._writer = Writer(database, watchdog, ledger, self._loop, options.writer, options.on_health)
        self.keys = KeyCache(lambda secret: self.read(partial(api_keys.find_key, secret=secret)), options.key_fresh_s)
        self._writer.start()

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, *, options: StoreOptions | None = None, receipts: bool = True
    ) -> Self:
        """Open the store of a data directory, or the PostgreSQL store at `url`; makes or upgrades it as needed.

        Args:
            data_dir: holds the embedded database, the signing key, the lock and the spool; made with mode 0700.
            url: `postgresql://…`, or `None` for SQLite in `data_dir`.
            options: behaviour.
            receipts: take the directory's lock and extend its chain; `False` for a second process beside a coordinator.

        Raises:
            StoreError: it cannot be opened; the code says why (`data_dir_in_use`, `store_newer`, `spool_damaged` …).
            SignerError: the signing key cannot be used.
        """
        options = options or StoreOptions()
        return cls(await asyncio.to_thread(_open, data_dir, url, options, receipts), options)

    async def close(self) -> None:
        """Make every queued write durable, then close; what cannot be written stays in the spool for the next start."""
        await self._writer.close()
        await self._loop.run_in_executor(None, self._threads.shutdown)
        self._watchdog.close()
        self._database.close()
        if self._ledger is not None:
            self._ledger.close()
        if self._lock is not None:
            os.close(self._lock)

    @property
    def health(self) -> StoreHealth:
        """Whether receipts are being recorded, and where; costs nothing."""
        return self._writer.health

    def expect(self, in_flight: Callable[[], int]) -> None:
        """Tell how many receipts may come soon: while there are more than have come, a write waits a moment for them."""
        self._writer.expected = in_flight

    def write(self, operation: Callable[[Connection], T]) -> "asyncio.Future[T]":
        """Run a function in the writer's next transaction; the future resolves when that is durable.

        The function may run more than once and must do nothing but use its connection. An exception that it raises,
        or returns, becomes the future's.
        """
        return self._writer.submit(operation)

    async def read(self, operation: Callable[[Connection], T]) -> T:
        """Run a function on a reader's connection, off the event loop."""
        return await self._loop.run_in_executor(self._threads, self._read, operation)

    def _read(self, operation: Callable[[Connection], T]) -> T:
        with connect(self._database.readers, self._watchdog.watch) as connection:
            return operation(connection)


@dataclass(frozen=True, slots=True)
class _Opened:
    database: Database
    ledger: Ledger | None
    lock: int | None


def _open(data_dir: Path, url: str | None, options: StoreOptions, receipts: bool) -> _Opened:
    with ExitStack() as undo:
        database = open_database(data_dir, url, timeout_s=options.timeout_s, readers=options.readers)
        undo.callback(database.close)
        upgrade(database.writer)
        ledger = lock = None
        if receipts:
            lock = lock_data_dir(data_dir)
            undo.callback(os.close, lock)
            spool = Spool(data_dir, options.spool_limit_bytes)
            undo.callback(spool.close)
            end = ChainEnd(data_dir)
            undo.callback(end.close)
            with connect(database.writer) as connection:
                signer, chain = open_signer(connection, data_dir, options.clock(), embedded=database.embedded)
                ledger = Ledger(data_dir, signer, chain, spool, end, options.on_store_failure)
                ledger.begin(connection)
        undo.pop_all()
    return _Opened(database, ledger, lock)
