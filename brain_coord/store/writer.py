"""The one thread that writes: it commits whatever has come in since its last commit, together.

A caller gets an asyncio future that resolves once its write is durable. Futures of a commit are resolved by one
wake-up of the event loop. A commit costs about the same for one receipt as for twenty, so while further ones are to be
expected a write waits a moment for company, and a little longer while company comes; the thread is woken once for all.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from brain_coord.receipts.body import ReceiptDraft
from brain_coord.store.database import Database, Kept, connect
from brain_coord.store.errors import CONFLICTS, StoreError, StoreUnavailable
from brain_coord.store.ledger import Entry, Ledger, conflict
from brain_coord.store.outage import Outage
from brain_coord.store.receipt_rows import sqlite_insertions
from brain_coord.store.records import StoreHealth
from brain_coord.store.watchdog import Watchdog

_TRIES = 3
"""Of a transaction that clashes with others."""

T = TypeVar("T")
A = TypeVar("A")
Operation = Callable[[Connection], Any]


Work = Operation | ReceiptDraft
"""A function of a connection, or a receipt; it may run again when a commit fails.

Receipts come as drafts: to write the canonical forms of some in a row, with the code in the processor's caches, costs a third
of what it does one by one between other work.
"""
Write = tuple[Work, asyncio.Future[Any]]


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """How much the writer takes at once and how patient it is."""

    batch: int = 512
    """Writes of one commit."""
    pending: int = 20_000
    """Writes that may wait; more are refused at once."""
    retry_s: float = 0.5
    """Pause after a failure of the database, doubled up to `retry_max_s`."""
    retry_max_s: float = 5.0
    company_s: float = 0.010
    """How long a write waits for others at most, while more are expected."""
    alone_s: float = 0.002
    """How long it waits while none comes."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What trying the database has shown: `None` when it is back."""

    error: Exception | None


class Writer:
    """Queue and thread. What the thread owns, no other touches; `health` is replaced as a whole."""

    def __init__(
        self,
        database: Database,
        watchdog: Watchdog,
        ledger: Ledger | None,
        loop: asyncio.AbstractEventLoop,
        limits: WriterLimits,
        on_health: Callable[[StoreHealth], None] | None = None,
    ) -> None:
        self._database = database
        self._watchdog = watchdog
        self._ledger = ledger
        self._loop = loop
        self._limits = limits
        self._queue: queue.SimpleQueue[list[Write] | Probed | None] = queue.SimpleQueue()
        self._gathered: list[Write] = []
        self._late: list[tuple[Callable[[], ReceiptDraft], asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.expected: Callable[[], int] = lambda: 0
        """How many writes may come soon, those that wait included; asked on the event loop."""
        self._pending = 0
        self._closing = False
        self._outage = Outage(limits.retry_s, limits.retry_max_s, partial(self._to_loop, on_health or _ignore))
        self._probe_thread: threading.Thread | None = None
        self._at_commit = False
        self._kept = Kept(database.writer, watchdog.watch)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    @property
    def health(self) -> StoreHealth:
        """Whether receipts are being recorded, and where; from any thread."""
        return self._outage.health

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, work: Work) -> "asyncio.Future[Any]":
        """Queue a write; call on the event loop."""
        return self._gather(self._gathered, work)

    def submit_late(self, draft: Callable[[], ReceiptDraft]) -> "asyncio.Future[Any]":
        """Queue a receipt that is drafted on the event loop when it leaves for the thread, in a row with its company.

        What `draft` raises becomes the future's. When the write is refused, `draft` is not called.
        """
        return self._gather(self._late, draft)

    def _gather(self, where: list[tuple[A, asyncio.Future[Any]]], work: A) -> "asyncio.Future[Any]":
        future = self._loop.create_future()
        if self._closing:
            future.set_exception(StoreUnavailable("store_closed", "the store is closed", "Start it again"))
        elif self._pending >= self._limits.pending:
            future.set_exception(
                StoreUnavailable("database_slow", f"{self._pending} writes are waiting", "Look at the database's disk")
            )
        else:
            self._pending += 1
            where.append((work, future))
            if len(self._gathered) + len(self._late) >= min(self.expected(), self._limits.batch):
                self._hand_over()
            elif self._timer is None:
                self._wait_for_company(time.monotonic() + self._limits.company_s)
        return future

    def _wait_for_company(self, until: float) -> None:
        waiting = len(self._gathered) + len(self._late)
        self._timer = self._loop.call_later(self._limits.alone_s, self._look, waiting, until)

    def _look(self, before: int, until: float) -> None:
        """Wait on while others come: a few together cost little more than one, and under load they do come."""
        if len(self._gathered) + len(self._late) > before and time.monotonic() < until:
            self._wait_for_company(until)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the thread what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        late, self._late = self._late, []
        for draft, future in late:
            try:
                self._gathered.append((draft(), future))
            except Exception as error:
                self._resolve([(future, error)])
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    async def close(self) -> None:
        """Commit what is queued, then end the thread."""
        while self._late or self._gathered:  # what is drafted now may have more to write
            self._hand_over()
        self._closing = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _resolve(self, answers: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
        self._pending -= len(answers)
        for future, result in answers:
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    # Everything below runs on the writer's thread.

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._take()
            if batch:
                done = self._try_commit(batch)
                self._to_loop(self._resolve, [(future, one) for (_, future), one in zip(batch, done, strict=True)])
            if self._outage.cause is None:
                self._replay_some()
            elif going and self._probe_thread is None and not self._outage.wait_s(time.monotonic()):
                self._probe_thread = threading.Thread(target=self._probe, name="store-probe", daemon=True)
                self._probe_thread.start()
        while self._outage.cause is None and self._waiting:
            self._replay_some()
        if self._probe_thread is not None:
            self._probe_thread.join()
        self._kept.let_go()

    def _take(self) -> tuple[list[Write], bool]:
        """The next writes, as many as have come; fewer, or none, when there is something else to do."""
        wait_s: float | None = None
        if self._outage.cause is None:
            wait_s = 0.0 if self._waiting else None
        elif self._probe_thread is None:
            wait_s = self._outage.wait_s(time.monotonic())
        batch: list[Write] = []
        try:
            item = self._queue.get(timeout=wait_s)
            while isinstance(item, list):
                batch += item
                if len(batch) >= self._limits.batch:
                    return batch, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        if isinstance(item, Probed):
            self._probed(item)
        return batch, item is not None

    def _probe(self) -> None:
        """Try the database with a small real write, on a thread of its own: receipts must not wait for this."""
        error = None
        try:
            with connect(self._database.writer, self._watchdog.watch) as connection:
                connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")
        except Exception as failure:
            error = failure
        self._queue.put(Probed(error))

    def _probed(self, probed: Probed) -> None:
        self._probe_thread = None
        if probed.error is not None:
            self._outage.goes_on(probed.error, time.monotonic())
            return
        self._outage.ends()
        if not self._waiting:
            self._outage.all_is_well()

    @property
    def _waiting(self) -> int:
        return 0 if self._ledger is None else self._ledger.waiting

    def _replay_some(self) -> None:
        """Write some of what was spooled; requests are served in between, and their receipts go behind it."""
        if self._ledger is None or not self._ledger.waiting:
            return
        try:
            self._ledger.spool.done(self._transaction(self._ledger.replay))
        except Exception as error:
            self._outage.goes_on(error, time.monotonic())
            return
        if not self._waiting:
            self._outage.all_is_well()

    def _try_commit(self, batch: Sequence[Write]) -> list[Any]:
        try:
            return self._commit(batch)
        except Exception as error:  # a fault of this program: the thread goes on, or every later write would hang
            return [error] * len(batch)

    def _commit(self, batch: Sequence[Write]) -> list[Any]:
        """Make a batch durable; the results stand in its order, errors among them."""
        entries = self._seal([work for work, _ in batch if isinstance(work, ReceiptDraft)])
        if self._outage.cause is not None or self._waiting:
            return self._without_database(batch, entries)
        try:
            done = self._to_database(batch, entries)
        except StoreUnavailable as error:
            self._outage.begins(error, time.monotonic())
            return self._without_database(batch, entries, unsure=self._at_commit)
        except Exception as error:
            if len(batch) > 1:  # one of them is at fault, not the database: each gets an answer of its own
                return [self._commit([write])[0] for write in batch]
            if isinstance(error, CONFLICTS) and isinstance(batch[0][0], ReceiptDraft) and self._ledger:
                self._ledger.lost()  # the chain has grown without us: the next receipt goes behind that
                error = conflict(self._ledger.chain)
            return [error]
        if self._ledger is not None:
            self._ledger.advance(_good(entries))
        return done

    def _to_database(self, batch: Sequence[Write], entries: Sequence[Entry | Exception]) -> list[Any]:
        good = _good(entries)
        if self._database.embedded and len(good) == len(batch) and len(insertions := sqlite_insertions(good)) == 1:
            self._at_commit = True
            self._kept.execute(*insertions[0])
            self._at_commit = False
            return [sealed for _, sealed in good]
        return self._transaction(lambda connection: self._apply(connection, batch, entries))

    def _seal(self, drafts: Sequence[ReceiptDraft]) -> list[Entry | Exception]:
        if not drafts:
            return []
        if self._ledger is None:
            error = StoreError("no_chain", "this store was opened without a signing key", "Open it with one")
            return [error] * len(drafts)
        if self._outage.cause is None and self._ledger.needs_database:
            try:
                self._transaction(self._ledger.prepare)
            except StoreUnavailable as failure:  # receipts can be sealed all the same while the chain's end is known
                self._outage.begins(failure, time.monotonic())
        try:
            return self._ledger.seal(drafts)
        except StoreUnavailable as failure:
            return [self._outage.cause or failure] * len(drafts)

    def _apply(self, connection: Connection, batch: Sequence[Write], entries: Sequence[Entry | Exception]) -> list[Any]:
        done = _results(batch, entries, lambda operation: operation(connection))
        if entries and self._ledger is not None:
            self._ledger.insert(connection, _good(entries))
        return done

    def _without_database(
        self, batch: Sequence[Write], entries: Sequence[Entry | Exception], *, unsure: bool = False
    ) -> list[Any]:
        """Put receipts aside; `unsure`: the commit that failed may have been done all the same."""
        cause = self._outage.cause or StoreUnavailable("database_down", "the spool is being written", "Try again")
        good = _good(entries)
        if good and self._ledger is not None:
            try:
                self._ledger.set_aside(good, cause)
            except Exception as error:
                if unsure:
                    self._ledger.lost()
                entries = [error if isinstance(entry, tuple) else entry for entry in entries]
                self._outage.receipts_are("refusing", error, self._waiting, time.time())
            else:
                self._outage.receipts_are("spooling", cause, self._waiting, time.time())
        elif self.health.state == "ok":
            spools = self._ledger is not None and self._ledger.spools
            self._outage.receipts_are("spooling" if spools else "refusing", cause, self._waiting, time.time())
        return _results(batch, entries, self._operate)

    def _operate(self, operation: Operation) -> Any:
        """Run one operation by itself: receipts wait for the spool, other writes only for the database."""
        if self._outage.cause is not None:
            return self._outage.cause
        try:
            return self._transaction(operation)
        except StoreUnavailable as error:
            self._outage.begins(error, time.monotonic())
            return error
        except Exception as error:
            return error

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` and commit it; again where the server gave it up in favour of another coordinator's writes."""
        for _ in range(_TRIES - 1):
            try:
                return self._once(work)
            except StoreUnavailable as error:
                if error.code != "database_contended":
                    raise
        return self._once(work)

    def _once(self, work: Callable[[Connection], T]) -> T:
        self._at_commit = False
        with self._kept.transaction() if self._database.embedded else self._fresh() as connection:
            done = work(connection)
            self._at_commit = True
        self._at_commit = False
        return done

    def _fresh(self) -> AbstractContextManager[Connection]:
        return connect(self._database.writer, self._watchdog.watch)

    def _to_loop(self, callback: Callable[[A], object], argument: A) -> None:
        with suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(callback, argument)


def _results(
    batch: Sequence[Write], entries: Sequence[Entry | Exception], run: Callable[[Operation], Any]
) -> list[Any]:
    sealed = iter([entry[1] if isinstance(entry, tuple) else entry for entry in entries])
    return [next(sealed) if isinstance(work, ReceiptDraft) else run(work) for work, _ in batch]


def _good(entries: Sequence[Entry | Exception]) -> list[Entry]:
    return [entry for entry in entries if isinstance(entry, tuple)]


def _ignore(_health: StoreHealth) -> None:
    return
