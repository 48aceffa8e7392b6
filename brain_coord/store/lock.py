"""One coordinator for one data directory: two would both extend its chain."""

import fcntl
import os
from pathlib import Path

from brain_coord.store.errors import StoreError, cannot_be_used

LOCK_FILE = "coord.lock"


def lock_data_dir(data_dir: Path) -> int:
    """Take the directory's lock; it is let go when the descriptor returned is closed, or the process ends in any way.

    Raises:
        StoreError: `data_dir_in_use`, or `data_dir` when the lock file cannot be made.
    """
    path = data_dir / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise cannot_be_used(f"the lock {path}", error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreError(
            "data_dir_in_use",
            f"another coordinator runs on {data_dir}",
            "Stop it, or give this one its own --data-dir",
        ) from None
    return descriptor
