"""Processes whose wall clock is wrong, and jumps while they run; the monotonic one is left alone, as on a real machine."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """Start processes with `env`, and set how far their wall clock is ahead at any time."""

    def __init__(self, folder: Path, ahead_s: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        library, self._file = folder / "wall_clock.so", folder / "ahead"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.env = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._file)}
        self._file.write_bytes(bytes(8))
        self.is_ahead(ahead_s)

    def is_ahead(self, seconds: float) -> None:
        """From now on, until it is set again."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1e9).to_bytes(8, "little", signed=True))
