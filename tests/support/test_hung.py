"""A hung test is named, shown, and ended: nothing below it is left."""

import subprocess
import sys

SCRIPT = """
import asyncio, subprocess, sys
import uvloop
from tests.support import hung

async def waits_for_nothing():
    await asyncio.Event().wait()

async def main():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    hung.end_after(0.5, "the test", sys.stderr)
    await waits_for_nothing()

uvloop.run(main())
"""


def test_a_test_that_hangs_is_ended_with_its_children_and_shows_what_it_waits_for():
    # Its child holds the same pipes: this ends only when that has ended too.
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 70
    assert "the test hangs: not done in 0.5 s" in done.stderr
    assert "in waits_for_nothing" in done.stderr
