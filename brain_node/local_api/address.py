"""Where the local API's socket lies."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "agent.sock"


def within(folder: Path, act: Callable[[str], None]) -> None:
    """Act on the socket's address inside a folder, however long the folder's path: addresses end at 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        act(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)
