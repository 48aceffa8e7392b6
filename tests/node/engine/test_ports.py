"""The choice of a port."""

import socket
from pathlib import Path

import pytest

from brain_node.engine.ports import HIGHEST, LOWEST, choose_port


def draws(*values: float):
    left = list(values)
    return lambda: left.pop(0) if left else 0.99


def port_at(share: float) -> int:
    return LOWEST + int(share * (HIGHEST - LOWEST))


def test_a_port_somebody_listens_on_is_left_alone():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        share = next(s / 1000 for s in range(1000) if choose_port((), draws(s / 1000)) == port_at(s / 1000))
        other.bind(("0.0.0.0", port_at(share)))
        other.listen()
        assert choose_port((), draws(share, 0.7)) != port_at(share)
    assert taken


def test_a_port_promised_to_another_engine_is_left_alone():
    first = choose_port((), draws(0.25))
    assert choose_port({first}, draws(0.25, 0.75)) != first


def test_ports_lie_below_those_the_kernel_gives_away():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert lowest >= 32768
    assert HIGHEST < 32768


def test_no_port_at_all_is_an_error():
    with pytest.raises(OSError, match="no free port"):
        choose_port(range(LOWEST, HIGHEST + 1), draws())
