"""The one thread that writes: it commits whatever has come in since its last commit, together.

A caller gets an asyncio future that resolves once its write is durable. Futures of a commit are resolved by one
wake-up of the event loop.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from brain_coord.receipts.body import ReceiptDraft
from brain_coord.receipts.chain import Sealed
from brain_coord.store.database import Database, connect
from brain_coord.store.errors import StoreError, StoreUnavailable
from brain_coord.store.ledger import Entry, Ledger, conflict
from brain_coord.store.records import StoreHealth
from brain_coord.store.watchdog import Watchdog

T = TypeVar("T")
Operation = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True)
class Write:
    """A function of a connection, or a receipt to seal; it may run again when a commit fails."""

    work: Operation | ReceiptDraft
    future: asyncio.Future[Any]


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


@dataclass(frozen=True, slots=True)
class Probed:
    """What trying the database has shown: `None` when it is back."""

    error: Exception | None


class Writer:
    """Queue, thread and the state of the database as the thread last saw it."""

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
        self._on_health = on_health
        self._queue: queue.SimpleQueue[Write | Probed | None] = queue.SimpleQueue()
        self._pending = 0
        self._closing = False
        self._down: StoreUnavailable | None = None
        self._retry_at = 0.0
        self._pause_s = limits.retry_s
        self._probing = False
        self._probe_thread: threading.Thread | None = None
        self._at_commit = False
        self.health = StoreHealth("ok")
        """Replaced as a whole by the thread; read it from anywhere."""
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, work: Operation | ReceiptDraft) -> "asyncio.Future[Any]":
        """Queue a write; call on the event loop."""
        future = self._loop.create_future()
        if self._closing:
            future.set_exception(StoreUnavailable("store_closed", "the store is closed", "Start it again"))
        elif self._pending >= self._limits.pending:
            future.set_exception(
                StoreUnavailable("database_slow", f"{self._pending} writes are waiting", "Look at the database's disk")
            )
        else:
            self._pending += 1
            self._queue.put(Write(work, future))
        return future

    async def close(self) -> None:
        """Commit what is queued, then end the thread."""
        self._closing = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    # Everything below runs on the writer's thread.

    def _run(self) -> None:
        if self._behind:
            self._catch_up()
        going = True
        while going:
            batch, going = self._take()
            if batch:
                self._answer(batch, self._try_commit(batch))
            if self._down is not None and going and not self._probing and time.monotonic() >= self._retry_at:
                self._probing = True
                self._probe_thread = threading.Thread(target=self._probe, name="store-probe", daemon=True)
                self._probe_thread.start()
        if self._probe_thread is not None:
            self._probe_thread.join()

    def _take(self) -> tuple[list[Write], bool]:
        """The next writes, as many as have come; fewer, or none, when there is something else to do first."""
        waits = self._down is not None and not self._probing
        wait_s = max(0.0, self._retry_at - time.monotonic()) if waits else None
        batch: list[Write] = []
        try:
            item = self._queue.get(timeout=wait_s)
            while isinstance(item, Write):
                batch.append(item)
                if len(batch) == self._limits.batch:
                    return batch, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        if item is None:
            return batch, False
        self._probing = False
        if item.error is None:
            self._catch_up()
        else:
            self._failed(item.error, tried=True)
        return batch, True

    def _probe(self) -> None:
        """Try the database with a small real write, on a thread of its own: receipts must not wait for this."""
        error = None
        try:
            with connect(self._database.writer, self._watchdog.watch) as connection:
                connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")
        except Exception as failure:
            error = failure
        self._queue.put(Probed(error))

    @property
    def _behind(self) -> bool:
        return self._down is not None or (self._ledger is not None and self._ledger.waiting > 0)

    def _catch_up(self) -> None:
        """The database is back: write what was spooled."""
        try:
            while self._ledger is not None and self._ledger.waiting:
                self._ledger.spool.done(self._transaction(self._ledger.replay))
        except Exception as error:
            self._failed(error, tried=True)
        else:
            self._recovered()

    def _try_commit(self, batch: Sequence[Write]) -> list[Any]:
        try:
            return self._commit(batch)
        except Exception as error:  # a fault of this program: the thread goes on, or every later write would hang
            return [error] * len(batch)

    def _commit(self, batch: Sequence[Write]) -> list[Any]:
        """Make a batch durable; the results stand in its order, errors among them."""
        drafts = [write.work for write in batch if isinstance(write.work, ReceiptDraft)]
        entries = self._seal(drafts)
        if self._behind:
            return self._without_database(batch, entries)
        try:
            done = self._transaction(lambda connection: self._apply(connection, batch, entries))
        except StoreUnavailable as error:
            self._failed(error)
            return self._without_database(batch, entries, unsure=self._at_commit)
        except Exception:
            # One of the writes is at fault, not the database: each gets a transaction, and an answer, of its own.
            return [self._alone(write) for write in batch]
        if self._ledger is not None:
            self._ledger.advance(_good(entries))
        return done

    def _seal(self, drafts: Sequence[ReceiptDraft]) -> list[Entry | Exception]:
        if not drafts:
            return []
        if self._ledger is None:
            return [StoreError("no_chain", "this store was opened without a signing key", "Open it with one")] * len(
                drafts
            )
        try:
            if self._ledger.needs_database and not self._behind:
                self._transaction(self._ledger.prepare)
            return list(self._ledger.seal(drafts))
        except StoreUnavailable as error:
            self._failed(error)
            return [self._down or error] * len(drafts)

    def _apply(self, connection: Connection, batch: Sequence[Write], entries: Sequence[Entry | Exception]) -> list[Any]:
        sealed = iter(entries)
        done = [
            _result(next(sealed)) if isinstance(write.work, ReceiptDraft) else write.work(connection) for write in batch
        ]
        if entries and self._ledger is not None:
            self._ledger.insert(connection, _good(entries))
        return done

    def _alone(self, write: Write, *, again: bool = True) -> Any:
        entries = self._seal([write.work]) if isinstance(write.work, ReceiptDraft) else []
        try:
            (done,) = self._transaction(lambda connection: self._apply(connection, [write], entries))
        except StoreUnavailable as error:
            self._failed(error)
            return self._without_database([write], entries, unsure=self._at_commit)[0]
        except IntegrityError as error:
            good = _good(entries)
            if not good or self._ledger is None:
                return error
            self._ledger.lost()  # somebody else has extended the chain: go on behind them
            return self._alone(write, again=False) if again else conflict(good[0][1].chain)
        except Exception as error:
            return error
        if self._ledger is not None:
            self._ledger.advance(_good(entries))
        return done

    def _without_database(
        self, batch: Sequence[Write], entries: Sequence[Entry | Exception], *, unsure: bool = False
    ) -> list[Any]:
        """Put receipts aside; `unsure`: the commit that failed may have been done all the same."""
        cause = self._down or StoreUnavailable("database_down", "the spool is being written", "Try again")
        kept = list(entries)
        good = _good(entries)
        if good and self._ledger is not None:
            try:
                self._ledger.set_aside(good, cause)
            except Exception as error:
                if unsure:
                    self._ledger.lost()
                kept = [error if isinstance(entry, tuple) else entry for entry in entries]
                self._note("refusing", error)
            else:
                self._note("spooling", cause)
        sealed = iter(kept)
        return [_result(next(sealed)) if isinstance(write.work, ReceiptDraft) else cause for write in batch]

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        self._at_commit = False
        with connect(self._database.writer, self._watchdog.watch) as connection:
            done = work(connection)
            self._at_commit = True
        self._at_commit = False
        return done

    def _failed(self, error: Exception, *, tried: bool = False) -> None:
        """The database is away; `tried`: still, as trying it again has shown."""
        if self._down is not None and not tried:
            return  # or requests that keep coming would put off the next try for ever
        if not isinstance(error, StoreUnavailable):
            error = StoreUnavailable("database_down", f"the store failed: {error}", "See the coordinator's log")
        self._down = error
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._limits.retry_max_s, self._pause_s * 2)
        if self.health.state == "ok":
            self._note("spooling" if self._ledger is not None and self._ledger.spools else "refusing", error)

    def _recovered(self) -> None:
        self._down = None
        self._pause_s = self._limits.retry_s
        self._say(StoreHealth("ok"))

    def _note(self, state: Any, error: Exception) -> None:
        spooled = 0 if self._ledger is None else self._ledger.waiting
        since_s = time.time() if self.health.since_s is None else self.health.since_s
        reason = str(error) if self._down is None else str(self._down)
        self._say(replace(self.health, state=state, reason=reason, since_s=since_s, spooled=spooled))

    def _say(self, health: StoreHealth) -> None:
        changed, self.health = health.state != self.health.state, health
        if changed and self._on_health is not None:
            with suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self._on_health, health)

    def _answer(self, batch: Sequence[Write], done: Sequence[Any]) -> None:
        answers = [(write.future, result) for write, result in zip(batch, done, strict=True)]
        with suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve, answers)

    # And this on the event loop again.

    def _resolve(self, answers: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
        self._pending -= len(answers)
        for future, result in answers:
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


def _good(entries: Sequence[Entry | Exception]) -> list[Entry]:
    return [entry for entry in entries if isinstance(entry, tuple)]


def _result(entry: Entry | Exception) -> Sealed | Exception:
    return entry[1] if isinstance(entry, tuple) else entry
