"""What the agent remembers between runs: whether its operator asked it to take no jobs."""

from dataclasses import dataclass
from pathlib import Path

import orjson

from brain_node.contract.secret_file import write_private

FILE_NAME = "state.json"


@dataclass(frozen=True, slots=True)
class State:
    """The remembered state."""

    draining: bool = False


def load_state(data_dir: Path) -> State:
    """The remembered state; a missing or damaged file is the fresh one, since nothing in it is precious."""
    try:
        content = orjson.loads((data_dir / FILE_NAME).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return State()
    return State(draining=isinstance(content, dict) and content.get("draining") is True)


def save_state(data_dir: Path, state: State) -> None:
    """Remember the state, whole or not at all."""
    write_private(data_dir / FILE_NAME, orjson.dumps({"draining": state.draining}).decode() + "\n")
