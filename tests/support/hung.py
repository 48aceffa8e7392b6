"""A test that hangs ends the process it hangs in, and says where it stands.

pytest-timeout's own ways do neither: an exception out of a signal handler is swallowed by uvloop (and by asyncio, where it
meets a callback), and what its thread prints is lost in a worker of pytest-xdist.
"""

import asyncio
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TextIO

import psutil


def stacks() -> str:
    """Where each thread and each unfinished asyncio task of this process stands, innermost call last."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        out.write(f"\nthread {names.get(ident, ident)}\n")
        out.writelines(traceback.format_stack(frame))
    for task in [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]:
        out.write(f"\ntask {task.get_name()}\n")
        awaited = task.get_coro()
        while awaited is not None:
            frame = (
                getattr(awaited, "cr_frame", None)
                or getattr(awaited, "ag_frame", None)
                or getattr(awaited, "gi_frame", None)
            )
            if frame is None:
                out.write(f"  waits for {awaited!r}\n")
                break
            out.writelines(traceback.format_list(traceback.StackSummary.extract([(frame, frame.f_lineno)])))
            awaited = (
                getattr(awaited, "cr_await", None)
                or getattr(awaited, "ag_await", None)
                or getattr(awaited, "gi_yieldfrom", None)
            )
    return out.getvalue()


def end_after(seconds: float, name: str, to: TextIO) -> Callable[[], None]:
    """End this process and its children unless the returned function is called within so many seconds.

    `to` gets the test's `name` and `stacks()` first. pytest-xdist counts the test as failed and goes on in another worker.
    """

    def end() -> None:
        try:
            to.write(f"\n++++ {name} hangs: not done in {seconds:g} s\n{stacks()}\n")
            to.flush()
            for child in psutil.Process().children(recursive=True):
                child.kill()
        finally:
            os._exit(70)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer.cancel
