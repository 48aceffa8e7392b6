"""What `engine install`, `engine list` and `engine show` print."""

from brain_node.cli.shapes.base import Problem, Shape


class EngineEnvironment(Shape):
    """One engine in an environment of its own."""

    name: str
    flavour: str
    version: str
    """Of vLLM."""
    torch: str
    path: str
    python: str
    installed_at: str
    """ISO 8601, UTC."""


class InstallPlan(Shape):
    """What `engine install --dry-run` would do."""

    package: str
    path: str
    need_bytes: int
    free_bytes: int
    present: bool


class Engines(Shape):
    """Every whole engine environment."""

    engines_dir: str
    engines: list[EngineEnvironment]


class EngineFault(Shape):
    """It did not work; the command ends with 69."""

    error: Problem
