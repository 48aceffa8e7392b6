"""What the engines of one agent share."""

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from brain_node.engine.timing import Timing


@dataclass(slots=True)
class Surroundings:
    """What the engines of one agent share."""

    data_dir: Path
    timing: Timing = field(default_factory=Timing)
    ports: set[int] = field(default_factory=set)
    """Ports promised to engines of this agent."""
    base_env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    @property
    def run_dir(self) -> Path:
        """Where running engines are on record."""
        return self.data_dir / "run"
