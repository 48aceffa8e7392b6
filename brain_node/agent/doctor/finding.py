"""One thing that was looked at, and what was found."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    level: Level
    message: str
    next_step: str = ""
    exit_code: int = 0
    """What the command ends with when this is its first failure; 0 unless the level is `fail`."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {name: value for name, value in asdict(self).items() if name != "exit_code"}


def ok(check: str, message: str) -> Finding:
    """Nothing wrong."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, next_step: str) -> Finding:
    """Something to know; the agent works."""
    return Finding(check, "warn", message, next_step)


def fail(check: str, message: str, next_step: str, exit_code: int) -> Finding:
    """The agent does not work like this."""
    return Finding(check, "fail", message, next_step, exit_code)
