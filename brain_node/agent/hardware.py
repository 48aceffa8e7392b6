"""The machine as the agent reports it: sampled off the event loop, read from the last sample."""

import os
import platform
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import psutil
import structlog

from brain_node.contract.messages import GpuClaim, Report
from brain_node.gpu.claims import claims_of
from brain_node.gpu.feed import GpuFeed, Reading
from brain_node.gpu.machine import machine_of
from brain_node.gpu.reader import GpuReader
from brain_node.gpu.records import Inventory, Problem
from brain_node.gpu.view import problem_json

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 2.0
"""How long one sample waits for the driver; a call that hangs longer leaves the last reading in force."""
MOST_CARDS: Final = 64


def _nobody() -> Collection[int]:
    return ()


class Hardware:
    """Cards, memory and system of this machine.

    Args:
        environ: the agent's environment, which may hide cards.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.own_pids: Callable[[], Collection[int]] = _nobody
        """Processes whose memory on the cards is ours; whoever runs engines sets it."""
        reader = GpuReader(self._pids, os.environ if environ is None else environ)
        self._feed = GpuFeed(reader.read)
        self._reading = self._feed.latest()
        self._vram_mib: int | None = None
        system = f"{platform.system()} {platform.release()}"[:200]
        self._plain = Report(os=system, cpu_count=os.cpu_count(), ram_bytes=psutil.virtual_memory().total)

    def _pids(self) -> Collection[int]:
        return self.own_pids()

    async def sample(self) -> Reading:
        """Look at the cards once; never blocks the loop."""
        try:
            self._reading = await self._feed.get(PATIENCE_S)
        except Exception:
            # Whatever a driver does, the agent and the engines on other cards go on with the last reading.
            log.exception("cards_not_read")
            return self._reading
        self._vram_mib = machine_of(self._reading.inventory).vram_mib
        return self._reading

    def close(self) -> None:
        """Let the sampling thread end."""
        self._feed.close()

    @property
    def inventory(self) -> Inventory:
        """The cards of the last sample."""
        return self._reading.inventory

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What a person should know about the driver and the cards."""
        return self._reading.problems

    def report(self) -> Report:
        """Hardware and software, from the last sample; the engine's fields are the agent's to add."""
        inventory = self._reading.inventory
        claims: dict[str, Any] = {
            "driver": inventory.driver,
            "cuda": inventory.cuda,
            "vram_mib": self._vram_mib,
            "gpus": self.telemetry(),
        }
        return self._plain.model_copy(update=claims)

    def telemetry(self) -> tuple[GpuClaim, ...]:
        """The cards that this agent may use, from the last sample; hidden ones are nobody's business."""
        return claims_of(self._reading.inventory)[:MOST_CARDS]

    def problems_json(self) -> list[dict[str, str]]:
        """The problems for `status`."""
        return [problem_json(problem) for problem in self.problems]
