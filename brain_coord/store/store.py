"""The coordinator's memory, as the event loop sees it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from brain_coord.receipts.body import ReceiptDraft
from brain_coord.receipts.chain import Sealed
from brain_coord.receipts.history import publish_all
from brain_coord.store import api_keys, join_tokens, nodes, receipt_rows, signer_keys
from brain_coord.store.database import Database, connect, open_database
from brain_coord.store.key_cache import KeyCache
from brain_coord.store.ledger import Ledger, OnFailure
from brain_coord.store.lock import lock_data_dir
from brain_coord.store.records import (
    ApiKey,
    Benchmark,
    Checkpoint,
    JoinToken,
    NodeRecord,
    Outcome,
    Plan,
    StoreHealth,
    Uptime,
)
from brain_coord.store.schema import upgrade
from brain_coord.store.signing import open_signer
from brain_coord.store.spool import Spool
from brain_coord.store.watchdog import Watchdog
from brain_coord.store.writer import Writer, WriterLimits

T = TypeVar("T")
_PRUNED_AT_ONCE = 1000
_EXPORTED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How the store behaves; every field has a good default."""

    on_store_failure: OnFailure = "spool"
    """While the database is away, keep receipts on disk and write them later (`spool`), or record none (`refuse`)."""
    timeout_s: float = 3.0
    """Longest wait for the database; after it counts as away."""
    spool_limit_bytes: int = 1 << 30
    """Size at which the spool refuses more receipts."""
    key_fresh_s: float = 1.0
    """How long a key revoked in another process may go on working."""
    readers: int = 4
    """Reads at once."""
    writer: WriterLimits = field(default_factory=WriterLimits)
    on_health: Callable[[StoreHealth], None] | None = None
    """Called on the event loop when `Store.health` changes its state: for the log and the metrics."""
    clock: Callable[[], float] = time.time
    """Wall clock for labels."""


class Store:
    """Typed access to keys, tokens, nodes and receipts; open it with `Store.open`.

    Writes return once they are durable. They are committed in groups by one thread, so awaiting many at once costs no
    more than awaiting one. Reads run on a few threads. Both raise `StoreUnavailable` while the database is away.
    """

    def __init__(self, opened: "_Opened", options: StoreOptions) -> None:
        """Use `Store.open`."""
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
        self._keys = KeyCache(lambda secret: self.read(partial(api_keys.find_key, secret=secret)), options.key_fresh_s)
        self._writer.start()

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, *, options: StoreOptions | None = None, receipts: bool = True
    ) -> "Store":
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
            self._ledger.spool.close()
        if self._lock is not None:
            os.close(self._lock)

    @property
    def health(self) -> StoreHealth:
        """Whether receipts are being recorded, and where; costs nothing."""
        return self._writer.health

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

    # API keys

    async def create_key(self, plan: Plan, label: str | None = None) -> tuple[ApiKey, str]:
        """A new key, and its text: shown now and never again."""
        return await self.write(partial(api_keys.create_key, plan=plan, label=label, now_s=self._clock()))

    async def find_key(self, secret: str) -> ApiKey | None:
        """The good key with this text, from memory when it was seen lately; `None` for an unknown or revoked one."""
        return await self._keys.find(secret)

    async def list_keys(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return await self.read(api_keys.list_keys)

    async def revoke_key(self, key_id: str) -> bool:
        """Revoke a key for good, at once in this process; `False` when there is none that is still good."""
        done = await self.write(partial(api_keys.revoke_key, key_id=key_id, now_s=self._clock()))
        self._keys.forget()
        return done

    # Join tokens

    async def create_token(
        self, *, operator: bool = False, uses: int | None = None, ttl_s: float | None = None, label: str | None = None
    ) -> tuple[JoinToken, str]:
        """A new join token, and its text: shown now and never again."""
        return await self.write(
            partial(
                join_tokens.create_token,
                now_s=self._clock(),
                operator=operator,
                uses=uses,
                ttl_s=ttl_s,
                label=label,
            )
        )

    async def redeem_token(self, secret: str, node_id: str) -> JoinToken:
        """Admit a node by a token, using it up by one unless it has admitted this node before.

        Raises:
            TokenRejected: it does not admit the node.
        """
        admitted = await self.write(
            partial(join_tokens.redeem_token, secret=secret, node_id=node_id, now_s=self._clock())
        )
        assert isinstance(admitted, JoinToken)
        return admitted

    async def list_tokens(self) -> list[JoinToken]:
        """All tokens, oldest first."""
        return await self.read(join_tokens.list_tokens)

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; nodes it has admitted stay."""
        return await self.write(partial(join_tokens.revoke_token, token_id=token_id, now_s=self._clock()))

    # Nodes

    async def upsert_node(self, seen: NodeRecord) -> NodeRecord:
        """Remember a node that joined; its first time and the operator's decisions stay. Returns it as it is now."""
        return await self.write(partial(nodes.upsert_node, seen=seen))

    async def touch_nodes(self, last_seen_s: dict[str, float]) -> None:
        """Set when nodes were last seen, many at once."""
        await self.write(partial(nodes.touch_nodes, last_seen_s=last_seen_s))

    async def get_node(self, node_id: str) -> NodeRecord | None:
        """One node."""
        return await self.read(partial(nodes.get_node, node_id=node_id))

    async def list_nodes(self) -> list[NodeRecord]:
        """All nodes by ascending id."""
        return await self.read(nodes.list_nodes)

    async def set_ban(self, node_id: str, reason: str | None) -> bool:
        """Ban a node for a reason, or lift its ban with `None`; `False` for an unknown node."""
        return await self.write(partial(nodes.set_ban, node_id=node_id, reason=reason))

    async def set_trust(self, node_id: str, trusted: bool) -> bool:
        """Trust a node, or stop; `False` for an unknown node."""
        return await self.write(partial(nodes.set_trust, node_id=node_id, trusted=trusted))

    async def set_drain(self, node_id: str, draining: bool) -> bool:
        """Take a node out of service, or put it back; `False` for an unknown node."""
        return await self.write(partial(nodes.set_drain, node_id=node_id, draining=draining))

    async def save_benchmark(self, benchmark: Benchmark) -> None:
        """Keep the latest benchmark of a model on a node."""
        await self.write(partial(nodes.save_benchmark, benchmark=benchmark))

    async def load_benchmarks(self, node_id: str | None = None) -> list[Benchmark]:
        """The benchmarks of one node, or of all."""
        return await self.read(partial(nodes.load_benchmarks, node_id=node_id))

    def add_outcome(self, outcome: Outcome) -> "asyncio.Future[None]":
        """Record how work on a node ended; need not be awaited: one that is lost is only missing from the score."""
        future = self.write(partial(nodes.add_outcomes, outcomes=[outcome]))
        future.add_done_callback(_seen)
        return future

    async def load_outcomes(self, node_id: str, since_s: float, limit: int = 200) -> list[Outcome]:
        """The latest outcomes of a node since a time, oldest first."""
        return await self.read(partial(nodes.load_outcomes, node_id=node_id, since_s=since_s, limit=limit))

    async def add_uptime(self, days: list[Uptime]) -> None:
        """Add seconds of connection and observation to days of nodes."""
        await self.write(partial(nodes.add_uptime, days=days))

    async def load_uptime(self, since_day: int, node_id: str | None = None) -> list[Uptime]:
        """Connection time by day since a day, of one node or of all."""
        return await self.read(partial(nodes.load_uptime, since_day=since_day, node_id=node_id))

    # Receipts

    def append_receipt(self, draft: ReceiptDraft) -> "asyncio.Future[Sealed]":
        """Seal a receipt into the chain; when the future resolves it is durable, in the database or in the spool.

        Exceptions of the future: `StoreUnavailable`, nothing was recorded; `CanonicalError`, the draft holds something
        that is not JSON.
        """
        return self._writer.submit(draft)

    async def get_receipt(self, receipt_id: str) -> Sealed | None:
        """The receipt with an id."""
        spooled = None if self._ledger is None else self._ledger.spool.find(receipt_id)
        return spooled or await self.read(partial(receipt_rows.get_receipt, receipt_id=receipt_id))

    async def recent_receipts(self, limit: int = 50) -> list[Sealed]:
        """The latest receipts of all chains, newest first; without those still in the spool."""
        return await self.read(partial(receipt_rows.recent_receipts, limit=limit))

    async def export_receipts(
        self,
        key_id: str | None = None,
        from_s: float | None = None,
        to_s: float | None = None,
        chain: str | None = None,
    ) -> AsyncIterator[Sealed]:
        """Receipts in chain order, read in pages; only those for which all given filters hold (`to_s` is exclusive)."""
        after = ("", 0)
        while True:
            page = await self.read(
                partial(
                    receipt_rows.page_of_receipts,
                    after=after,
                    key_id=key_id,
                    chain=chain,
                    from_s=from_s,
                    to_s=to_s,
                    limit=_EXPORTED_AT_ONCE,
                )
            )
            for sealed in page:
                yield sealed
            if len(page) < _EXPORTED_AT_ONCE:
                return
            after = (page[-1].chain, page[-1].seq)

    async def signers(self) -> list[dict[str, Any]]:
        """The published key history of every chain in the store (`brain_coord.receipts.history`)."""
        return publish_all(await self.read(signer_keys.list_signer_keys))

    async def checkpoint(self, chain: str) -> Checkpoint | None:
        """What is left of the pruned start of a chain."""
        return await self.read(partial(receipt_rows.get_checkpoint, chain=chain))

    # Retention

    async def prune(self, *, receipts_before_s: float | None = None, outcomes_before_s: float | None = None) -> int:
        """Delete old receipts of this chain, and old outcomes and uptime days, a little at a time; returns how many.

        The chain stays verifiable: its first remaining link continues from a checkpoint.
        """
        gone = 0
        if receipts_before_s is not None and self.chain is not None:
            gone += await self._repeat(
                partial(
                    receipt_rows.prune_receipts,
                    chain=self.chain,
                    before_s=receipts_before_s,
                    now_s=self._clock(),
                    most=_PRUNED_AT_ONCE,
                )
            )
        if outcomes_before_s is not None:
            gone += await self._repeat(partial(nodes.forget_before, before_s=outcomes_before_s, most=_PRUNED_AT_ONCE))
        return gone

    async def _repeat(self, prune: Callable[[Connection], int]) -> int:
        gone = 0
        while count := await self.write(prune):
            gone += count
        return gone


@dataclass(frozen=True, slots=True)
class _Opened:
    database: Database
    ledger: Ledger | None
    lock: int | None


def _open(data_dir: Path, url: str | None, options: StoreOptions, receipts: bool) -> _Opened:
    database = open_database(data_dir, url, timeout_s=options.timeout_s, readers=options.readers)
    lock = None
    try:
        upgrade(database.writer)
        if not receipts:
            return _Opened(database, None, None)
        lock = lock_data_dir(data_dir)
        spool = Spool(data_dir, options.spool_limit_bytes)
        with connect(database.writer) as connection:
            signer, chain = open_signer(connection, data_dir, options.clock(), embedded=database.embedded)
            ledger = Ledger(data_dir, signer, chain, spool, options.on_store_failure)
            ledger.prepare(connection)
        return _Opened(database, ledger, lock)
    except BaseException:
        database.close()
        if lock is not None:
            os.close(lock)
        raise


def _seen(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()
