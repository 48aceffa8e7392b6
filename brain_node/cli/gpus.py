"""`brain-node gpus`: what this machine has, as the agent sees it."""

import asyncio
import sys
from typing import Final

import typer

from brain_node.cli.options import AsJson, DataDir
from brain_node.cli.status import print_json
from brain_node.cli.table import print_table
from brain_node.exit_codes import UNAVAILABLE
from brain_node.gpu.feed import GpuFeed, Reading
from brain_node.gpu.reader import GpuReader
from brain_node.gpu.records import Gpu, GpuState
from brain_node.gpu.view import reading_json
from brain_node.plan.nameplate import nameplate_gb
from brain_node.plan.sizes import gib

PATIENCE_S: Final = 30.0
"""How long a command waits for a driver that does not answer."""


def gpus(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show this machine's NVIDIA cards and what is wrong with them. It tells their memory, who uses it, and their state.

    Ends with 69 when the driver cannot be asked or no card can be used.
    """
    del data_dir  # every command takes it; the cards do not depend on it
    reading = read_machine()
    if as_json:
        print_json(reading_json(reading))
    elif reading.inventory.gpus:
        print_table(
            ["GPU", "name", "size", "free", "others use", "load", "temp", "state"],
            [_row(gpu) for gpu in reading.inventory.gpus],
        )
        typer.echo(f"driver {reading.inventory.driver or 'unknown'}, CUDA up to {reading.inventory.cuda or 'unknown'}")
    for problem in reading.problems:
        sys.stderr.write(f"[{problem.code}] {problem.message}. Next: {problem.next_step}\n")
    if not reading.inventory.usable:
        raise typer.Exit(UNAVAILABLE)


def read_machine() -> Reading:
    """Read the cards once, waiting a bounded time."""

    async def once() -> Reading:
        feed = GpuFeed(GpuReader().read)
        try:
            return await feed.get(PATIENCE_S)
        finally:
            feed.close()

    return asyncio.run(once())


def _row(gpu: Gpu) -> list[str]:
    place = f"{gpu.index}" if gpu.mig_index is None else f"{gpu.index}.{gpu.mig_index}"
    size = "unknown" if gpu.total_bytes is None else f"{nameplate_gb(gpu.total_bytes)} GB"
    state = gpu.state.value if gpu.reason is None else f"{gpu.state.value}: {gpu.reason}"
    if gpu.state is GpuState.OK and not gpu.visible:
        state = "hidden by CUDA_VISIBLE_DEVICES"
    if gpu.kind.value != "discrete":
        size += f" {gpu.kind.value}"
    return [
        place,
        gpu.name or "unknown",
        size,
        gib(gpu.free_bytes),
        gib(gpu.used_by_others_bytes),
        "unknown" if gpu.utilization_percent is None else f"{gpu.utilization_percent} %",
        "unknown" if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        state,
    ]
