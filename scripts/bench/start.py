"""How the benches and `scripts/cluster_demo` begin and end: with what they need, right arguments, and no process left behind.

Nothing is imported here that Python does not bring.
"""

import argparse
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"


def with_packages() -> None:
    """Go on in the environment of the tests where the system's Python runs this; leave where nobody has what is needed."""
    if PYTHON.exists() and sys.prefix == sys.base_prefix:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    if find_spec("psutil") is None or find_spec("uvicorn") is None:
        sys.exit(
            f"{Path(sys.argv[0]).name} needs the packages of the tests\n  next: ./scripts/test fast (it makes .venv)"
        )


def with_servers() -> None:
    """Leave where PostgreSQL or Redis is missing."""
    redis = shutil.which("redis-server") or shutil.which("valkey-server")
    if redis is None or not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        sys.exit("PostgreSQL and Redis are needed\n  next: apt-get install postgresql redis-server")


def run(main: Callable[[], int]) -> None:
    """Run a bench; Ctrl-C and SIGTERM end whatever it started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = main()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = 130
    sys.exit(code)


def count(text: str) -> int:
    """An argument that is a whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def seconds(text: str) -> float:
    """An argument that is a time above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("a time above 0, in seconds")
    return value


def new_file(text: str) -> Path:
    """An argument that names a file to be written: what takes half an hour should not end with the news that it cannot."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path
