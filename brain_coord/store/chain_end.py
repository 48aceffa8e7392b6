"""How far a chain had come, beside the store: what was durable there once must still be there at the next start.

Written behind every commit and never waited for: it may be older than the store after a power cut, and is never newer.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from brain_coord.receipts.chain import ChainHead
from brain_coord.store.errors import StoreError, cannot_be_used

END_FILE: Final = "chain.end"


class ChainEnd:
    """The file of one data directory; used by the writer's thread."""

    def __init__(self, data_dir: Path) -> None:
        """Open it.

        Raises:
            StoreError: `data_dir`, it cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        path = data_dir / END_FILE
        try:
            self._file = os.open(path, flags, 0o600)
            os.fchmod(self._file, 0o600)
        except OSError as error:
            raise cannot_be_used(f"the file {path}", error) from None

    def check(self, head: ChainHead) -> None:
        """See that the store ends no earlier.

        Raises:
            StoreError: `store_behind`; to go on would give links of the chain twice.
        """
        chain, seq = self._read()
        if chain == head.chain and seq > head.seq:
            raise StoreError(
                "store_behind",
                f"links {head.seq + 1} to {seq} of receipt chain {chain} were recorded, and the store does not hold them any more",
                "Put back what is missing (coord.db-wal, the spool) or a newer backup; to go on without them, move "
                "signing.key away and run `brain-coord keys new-chain`, which keeps all earlier receipts",
            )

    def write(self, head: ChainHead) -> None:
        """The chain has come so far."""
        with suppress(OSError):  # a full disk is told of by what has to be written
            os.pwrite(self._file, b"%s %020d\n" % (head.chain.encode(), head.seq), 0)

    def _read(self) -> tuple[str, int]:
        chain, _, seq = os.pread(self._file, 100, 0).decode("ascii", "replace").rstrip("\n").partition(" ")
        return (chain, int(seq)) if seq.isascii() and seq.isdigit() else ("", 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
