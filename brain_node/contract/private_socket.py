"""Unix sockets that only their owner can open, in folders of any depth."""

import os
import socket
from collections.abc import Callable
from pathlib import Path


def listen_private(folder: Path, name: str) -> socket.socket:
    """A socket that listens at a file in a folder, mode 0600 from its first instant.

    A file that a dead program left is replaced; the caller holds the folder's lock, which rules out a living owner. The
    file has its name once the socket listens: whoever sees it can connect.
    """
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unnamed = f".{name}.new"
    (folder / unnamed).unlink(missing_ok=True)
    before = os.umask(0o177)  # bind() makes the file with the mode that the umask leaves
    try:
        _within(folder, unnamed, door.bind)
        door.listen()
        (folder / unnamed).replace(folder / name)
    except BaseException:
        door.close()
        raise
    finally:
        os.umask(before)
    door.setblocking(False)
    return door


def connect_private(folder: Path, name: str, timeout_s: float) -> socket.socket:
    """A connection to the program that listens on a socket file in a folder.

    Raises:
        FileNotFoundError, ConnectionRefusedError: no program does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        _within(folder, name, connection.connect)
    except BaseException:
        connection.close()
        raise
    return connection


def _within(folder: Path, name: str, act: Callable[[str], None]) -> None:
    """Act on a socket's address, however long the folder's path: addresses end at 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        act(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
