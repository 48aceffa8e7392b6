"""How commands reach the running coordinator; a refusal, or none that runs, ends the command with the next step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from brain_coord.admin import AdminError, NotRunning, ask
from brain_coord.cli.store_access import TEMPORARY, fail


def ask_running(data_dir: Path, op: str) -> Any:
    """What the coordinator that runs on a data folder answers."""

    def none_runs() -> None:
        fail("not_running", "no coordinator runs on this data folder", "Start one with `brain-coord serve`", TEMPORARY)

    return ask_or(none_runs, data_dir, op)


def ask_or(otherwise: Callable[[], Any], data_dir: Path, op: str, **arguments: Any) -> Any:
    """What the running coordinator answers; while none runs, what `otherwise` finds in the store."""
    try:
        return ask(data_dir, op, **arguments)
    except NotRunning:
        pass
    except AdminError as error:
        fail("coordinator", str(error), "See the coordinator's log")
    return otherwise()
