"""Chooses the port of an engine."""

import socket
from collections.abc import Callable, Container
from typing import Final

from brain_node.engine.argv import HOST

LOWEST: Final = 21000
HIGHEST: Final = 32000
"""Below the range from which the kernel gives ports to outgoing connections: an engine's own helpers take those, and
one of them could sit on the engine's port by the time it binds."""

_TRIES: Final = 200


def choose_port(taken: Container[int], draw: Callable[[], float]) -> int:
    """A port that nobody listens on now.

    Args:
        taken: ports promised to other engines, or tried before.
        draw: a source of numbers in [0, 1).

    Raises:
        OSError: none was found.
    """
    for _ in range(_TRIES):
        port = LOWEST + int(draw() * (HIGHEST - LOWEST))
        if port not in taken and _is_free(port):
            return port
    raise OSError(f"no free port between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one in TIME_WAIT is free; a listener is not
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
