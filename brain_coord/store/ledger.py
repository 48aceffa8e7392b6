"""Where receipts go: sealed in order, then into the database, or into the spool while that is away.

Owned by the writer's thread. The chain's order is the order of sealing; it is kept because nothing is written to the
database past a receipt that still waits in the spool.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection

from brain_coord.receipts.body import ReceiptDraft
from brain_coord.receipts.chain import ChainHead, Sealed, Unsealed, seal
from brain_coord.receipts.signer import KEY_FILE, Signer
from brain_coord.store.chain_end import ChainEnd
from brain_coord.store.errors import StoreError, StoreUnavailable
from brain_coord.store.receipt_rows import chain_head, insert_receipts, link_hash
from brain_coord.store.signing import changed_signer
from brain_coord.store.spool import Spool

OnFailure = Literal["spool", "refuse"]
Entry = tuple[Unsealed, Sealed]
_REPLAYED_AT_ONCE = 1000


class Ledger:
    """The end of one chain, and the two places where it grows."""

    def __init__(
        self, data_dir: Path, signer: Signer, chain: str, spool: Spool, end: ChainEnd, on_failure: OnFailure
    ) -> None:
        self.chain = chain
        self.spool = spool
        self._end = end
        self._data_dir = data_dir
        self._signer = signer
        self._on_failure = on_failure
        self._head: ChainHead | None = None if spool.last is None else spool.last.head
        self._key_path = data_dir / KEY_FILE  # looked at before every commit
        self._key_file = self._stamp()

    @property
    def waiting(self) -> int:
        """Receipts that have to be written to the database before any new one."""
        return len(self.spool)

    @property
    def spools(self) -> bool:
        """Whether receipts are kept on disk while the database is away, as opposed to refused."""
        return self._on_failure == "spool"

    def prepare(self, connection: Connection) -> None:
        """Learn from the database what has to be known before sealing: the chain's end, and a rotated key."""
        if self._head is None:
            self._head = chain_head(connection, self.chain)
        stamp = self._stamp()
        if stamp != self._key_file:
            self._signer = changed_signer(connection, self._data_dir, self._signer, self.chain)
            self._key_file = stamp

    def begin(self, connection: Connection) -> None:
        """Take the chain up at a start.

        Raises:
            StoreError: `store_behind`, links that were recorded are missing.
        """
        self.prepare(connection)
        assert self._head is not None
        self._end.check(self._head)

    def close(self) -> None:
        """Close the files."""
        self.spool.close()
        self._end.close()

    @property
    def needs_database(self) -> bool:
        """Whether `prepare` has something to ask the database."""
        return self._head is None or self._stamp() != self._key_file

    def seal(self, drafts: Sequence[ReceiptDraft]) -> list[Entry | Exception]:
        """Seal receipts in order, but for those that cannot be written; the end moves with `advance`.

        Raises:
            StoreUnavailable: the chain's end is not known since the database was last lost in the middle of a commit.
        """
        if self._head is None:
            raise StoreUnavailable(
                "database_down",
                "the end of the receipt chain has to be read from the database first",
                "Bring the database back",
            )
        receipts = [_unsealed(draft) for draft in drafts]
        links = iter(seal(self._head, [each.body for each in receipts if isinstance(each, Unsealed)], self._signer))
        return [(each, next(links)) if isinstance(each, Unsealed) else each for each in receipts]

    def insert(self, connection: Connection, entries: Sequence[Entry]) -> None:
        """Write sealed receipts to the database; durable with the transaction."""
        insert_receipts(connection, entries)

    def advance(self, entries: Sequence[Entry]) -> None:
        """The receipts are durable: the chain goes on behind them."""
        if entries:
            self._head = entries[-1][1].head
            self._end.write(self._head)

    def lost(self) -> None:
        """A commit failed in the middle: whether the chain has grown is only known when the database is back."""
        self._head = None

    def set_aside(self, entries: Sequence[Entry], cause: StoreUnavailable) -> None:
        """Keep sealed receipts while the database is away.

        Raises:
            StoreUnavailable: the setting is `refuse`, or the spool cannot take them; nothing was recorded.
        """
        if self._on_failure == "refuse":
            raise cause
        self.spool.append([(receipt.receipt_id, sealed) for receipt, sealed in entries])
        self.advance(entries)

    def replay(self, connection: Connection) -> int:
        """Write the oldest spooled receipts to the database; once that is committed, tell the spool they are done.

        Raises:
            StoreUnavailable: `chain_conflict`, another coordinator has extended this chain; `store_behind`, it lacks links
                that the spool goes on from.
        """
        waiting = self.spool.waiting(_REPLAYED_AT_ONCE)
        end = chain_head(connection, self.chain)
        new = [sealed for sealed in waiting if sealed.seq > end.seq]
        for sealed in waiting[: len(waiting) - len(new)][-1:]:
            if link_hash(connection, self.chain, sealed.seq) not in (None, sealed.hash):
                raise conflict(self.chain)
        if new and new[0].seq > end.seq + 1:
            raise StoreUnavailable(
                "store_behind",
                f"the store ends at link {end.seq} of chain {self.chain}, and the spool goes on from link {new[0].seq}",
                "It is an older copy: put the newest one back, or restore it as `brain-coord db backup --help` says",
            )
        if new and (new[0].seq, new[0].prev) != (end.seq + 1, end.hash):
            raise conflict(self.chain)
        insert_receipts(connection, [(sealed.unsealed(), sealed) for sealed in new])
        return len(waiting)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._key_path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


def _unsealed(draft: ReceiptDraft) -> Unsealed | Exception:
    try:
        return Unsealed.of(draft)
    except Exception as error:  # whatever is wrong with a draft concerns its own request alone
        return error


def conflict(chain: str) -> StoreError:
    """Two coordinators extend one chain, which only a copied data directory can cause."""
    return StoreUnavailable(
        "chain_conflict",
        f"chain {chain} was extended by another coordinator",
        "Do not run two coordinators on copies of one data directory; give each its own",
    )
