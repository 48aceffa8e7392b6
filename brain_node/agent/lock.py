"""One agent per data folder: two would share an identity and fight over one session."""

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_NAME: Final = "agent.lock"


class AlreadyRunningError(Exception):
    """Another agent holds this data folder."""


class DataDirLock:
    """A lock that ends with its process, however that ends.

    Raises:
        AlreadyRunningError: another agent holds it.
        OSError: the folder cannot be written.
    """

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise AlreadyRunningError(
                f"an agent runs already with the data folder {data_dir} (process {holder or 'unknown'})"
            ) from None
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; the file stays, since removing a lock file races with the next holder."""
        os.close(self._descriptor)
