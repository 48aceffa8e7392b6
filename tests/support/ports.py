"""A port for a program that cannot choose one by itself."""

import random
import socket


def free_port() -> int:
    """A port nobody listens on, below those that outgoing connections take by themselves."""
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
