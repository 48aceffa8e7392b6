"""A coordinator in this process, behind a real port, for tests that look inside it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from brain_coord.coordinator import Coordinator
from brain_coord.server import serve
from brain_coord.settings import Settings


@dataclass
class Inside:
    """A coordinator that runs, and its address."""

    coordinator: Coordinator
    url: str


@asynccontextmanager
async def coordinator_inside(data_dir: Path, **settings: object) -> AsyncIterator[Inside]:
    ready: asyncio.Future[Inside] = asyncio.get_running_loop().create_future()

    def on_ready(coordinator: Coordinator, port: int) -> None:
        ready.set_result(Inside(coordinator, f"http://127.0.0.1:{port}"))

    wanted = Settings(data_dir=data_dir, port=0, token_required=False, drain_s=2.0, **settings)
    task = asyncio.create_task(serve(wanted, on_ready))
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield ready.result()
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)  # as its operator would; only a whole stop closes every socket
        await task
