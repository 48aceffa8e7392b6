"""What every `--json` of this program prints, as records from which the JSON Schemas are made.

Sizes are in the unit that their name ends with; what is not known is null, never 0.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from brain_node.cli.shapes.agent import Draining, NotRunning, Status, Stopping, Why
from brain_node.cli.shapes.engines import EngineEnvironment, EngineFault, Engines, InstallPlan
from brain_node.cli.shapes.machine import Examination, IdentityShown, Machine, Survey

SHAPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "status": Status | NotRunning,
        "drain": Draining | NotRunning,
        "resume": Draining | NotRunning,
        "stop": Stopping | NotRunning,
        "why": Why | NotRunning,
        "doctor": Examination,
        "gpus": Machine,
        "models": Survey,
        "identity show": IdentityShown,
        "engine install": EngineEnvironment | InstallPlan | EngineFault,
        "engine list": Engines,
        "engine show": EngineEnvironment | EngineFault,
    }
)
"""By command, without the program's name. `join --json` is not among them: that option is about its log lines."""
