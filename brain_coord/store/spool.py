"""Receipts on disk while the database is away: an append-only file of sealed envelopes, one a line.

Used by the writer's thread; `find` may be called from any thread.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from brain_coord.receipts.chain import Sealed
from brain_coord.store.database import make_private_dir
from brain_coord.store.errors import StoreError, StoreUnavailable, cannot_be_used, unavailable

SPOOL_DIR = "spool"
SPOOL_FILE = "receipts.jsonl"


class Spool:
    """An append-only file: an append that returned is on disk, and one that failed has left nothing behind."""

    def __init__(self, data_dir: Path, limit_bytes: int) -> None:
        """Open the spool of a data directory and take up what an earlier run left in it.

        Raises:
            StoreError: `spool_damaged`, or `data_dir` when it cannot be opened.
        """
        folder = data_dir / SPOOL_DIR
        make_private_dir(folder)
        self.path = folder / SPOOL_FILE
        self._limit_bytes = limit_bytes
        self._places: dict[str, tuple[int, int]] = {}
        self._lines: list[tuple[int, int]] = []
        self._done = 0
        self._size = 0
        self._torn = False
        self.last: Sealed | None = None
        """The newest spooled receipt."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
            os.fchmod(self._file, 0o600)
            self._take_up()
        except OSError as error:
            raise cannot_be_used(f"the spool {self.path}", error) from None

    def __len__(self) -> int:
        """Receipts that still have to be written to the database."""
        return len(self._lines) - self._done

    def append(self, sealed: Sequence[tuple[str, Sealed]]) -> None:
        """Write receipts (with their ids) to disk, all or none.

        Raises:
            StoreUnavailable: `spool_full`, `disk_full` or another fault of the disk; nothing was kept.
        """
        lines = [receipt.line() + b"\n" for _, receipt in sealed]
        data = b"".join(lines)
        if self._size + len(data) > self._limit_bytes:
            raise StoreUnavailable(
                "spool_full",
                f"the spool has reached its limit of {self._limit_bytes} bytes",
                "Bring the database back; the spool is written to it by itself",
            )
        try:
            self._mend()
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fdatasync(self._file)
        except OSError as error:
            self._torn = True
            with suppress(OSError):
                self._mend()
            raise unavailable(error) or error from error
        for (receipt_id, receipt), line in zip(sealed, lines, strict=True):
            self._add(receipt_id, receipt, len(line))

    def _mend(self) -> None:
        """Cut off what an append that failed has left behind the last good line."""
        if self._torn:
            os.ftruncate(self._file, self._size)
            self._torn = False

    def find(self, receipt_id: str) -> Sealed | None:
        """A receipt that is still in the spool."""
        place = self._places.get(receipt_id)
        if place is None:
            return None
        with suppress(ValueError):  # cleared, perhaps refilled, in the meantime: it is in the database by now
            found = self._read(*place)
            return found if found.unsealed().receipt_id == receipt_id else None
        return None

    def waiting(self, most: int) -> list[Sealed]:
        """The oldest receipts that have to be written to the database."""
        return [self._read(*place) for place in self._lines[self._done : self._done + most]]

    def done(self, count: int) -> None:
        """The oldest `count` are in the database; after the last one the file is emptied."""
        self._done += count
        if self._done == len(self._lines):
            os.ftruncate(self._file, 0)
            os.fdatasync(self._file)
            self._places, self._lines, self._done, self._size, self.last = {}, [], 0, 0, None

    def close(self) -> None:
        """Close the file; what is in it waits for the next start."""
        os.close(self._file)

    def _add(self, receipt_id: str, receipt: Sealed, length: int) -> None:
        place = (self._size, length)
        self._lines.append(place)
        self._places[receipt_id] = place
        self._size += length
        self.last = receipt

    def _read(self, start: int, length: int) -> Sealed:
        return Sealed.parse(os.pread(self._file, length, start)[:-1])

    def _take_up(self) -> None:
        with self.path.open("rb") as file:
            bad = 0
            for number, line in enumerate(file, 1):
                try:
                    receipt = Sealed.parse(line.removesuffix(b"\n"))
                except ValueError:
                    bad = bad or number
                    continue
                if bad or (self.last is not None and receipt.prev != self.last.hash):
                    raise StoreError(
                        "spool_damaged",
                        f"line {bad or number} of the spool {self.path} is damaged",
                        "Keep a copy of the file and restore it from a backup; deleting it loses its receipts",
                    )
                if not line.endswith(b"\n"):
                    break
                self._add(receipt.unsealed().receipt_id, receipt, len(line))
        # An end that is torn or garbled was never acknowledged: its append had not returned.
        os.ftruncate(self._file, self._size)
