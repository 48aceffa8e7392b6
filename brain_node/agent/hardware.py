"""The machine as the agent reports it: sampled off the event loop, read from the last sample."""

import asyncio
import os
import platform
from typing import Protocol

import psutil

from brain_node.contract.messages import GpuClaim, Report


class Hardware(Protocol):
    """Where reports come from."""

    async def sample(self) -> None:
        """Look at the machine once; may take long, and never blocks the loop."""

    def report(self) -> Report:
        """Hardware and software, from the last sample; the engine's fields are the agent's to add."""

    def telemetry(self) -> tuple[GpuClaim, ...]:
        """The cards, from the last sample."""


class PlainHardware:
    """A machine without cards worth telling about."""

    def __init__(self) -> None:
        self._report = Report()

    async def sample(self) -> None:
        """Look once; what it tells does not change."""
        self._report = await asyncio.to_thread(plain_report)

    def report(self) -> Report:
        """The system, its CPUs and memory."""
        return self._report

    def telemetry(self) -> tuple[GpuClaim, ...]:
        """Nothing."""
        return ()


def plain_report() -> Report:
    """What can be said of any machine."""
    system = f"{platform.system()} {platform.release()}"
    return Report(os=system[:200], cpu_count=os.cpu_count(), ram_bytes=psutil.virtual_memory().total)
