"""`brain-node logs`: the agent's own lines, or an engine's; also while nothing runs."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from brain_node.agent.log_line import plain_line
from brain_node.cli.completion import complete_log
from brain_node.cli.errors import fail
from brain_node.cli.options import DataDir
from brain_node.contract.nearest import did_you_mean
from brain_node.exit_codes import UNAVAILABLE, USAGE
from brain_node.settings import data_dir_of

AGENT_LOG: Final = "agent.log"
LOOK_S: Final = 0.3


def logs(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model, for its engine's log; without it, the agent's.",
            autocompletion=complete_log,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, metavar="N", help="How many of the last lines.")] = 50,
    data_dir: DataDir = None,
) -> None:
    """Print the last lines of the agent's log, or of a model's engine."""
    folder = data_dir_of(data_dir, os.environ)[0] / "logs"
    path = log_of(folder, model)
    show = _agent_line if path.name == AGENT_LOG else _as_it_is
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in deque(file, maxlen=min(lines, sys.maxsize)):
                sys.stdout.write(show(line))
            sys.stdout.flush()
            if follow:
                _follow(path, file.tell(), show)
    except KeyboardInterrupt:
        return


def log_of(folder: Path, model: str | None) -> Path:
    """The log file that is meant; leaves with the names that there are when it is none of them."""
    there = sorted(path.stem for path in folder.glob("*.log") if path.name != AGENT_LOG)
    if model is None:
        if (folder / AGENT_LOG).exists():
            return folder / AGENT_LOG
        fail(
            "no_logs",
            f"there are no logs in {folder}",
            "brain-node join, or name its folder with --data-dir",
            UNAVAILABLE,
        )
    wanted = model.replace("/", "--")
    parts = [name for name in there if name == wanted] or [name for name in there if wanted.lower() in name.lower()]
    if len(parts) != 1:
        models = [name.replace("--", "/", 1) for name in parts or there]
        there_are = f"logs there are: {', '.join(models) or 'none yet'}"
        hint = there_are if parts else did_you_mean(model, models, there_are)
        fail("no_log", f"there is no engine log for `{model}`", hint, USAGE)
    return folder / f"{parts[0]}.log"


def _follow(path: Path, position: int, show: Callable[[str], str]) -> None:
    """Print what is added, also after the file was put aside and begun anew."""
    opened = path.stat().st_ino
    while True:
        time.sleep(LOOK_S)
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        if state.st_ino != opened or state.st_size < position:
            opened, position = state.st_ino, 0
        if state.st_size == position:
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(position)
            for line in file:
                sys.stdout.write(show(line))
            position = file.tell()
        sys.stdout.flush()


def _as_it_is(line: str) -> str:
    return line


def _agent_line(line: str) -> str:
    """One record of the agent's log as people read it."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    return plain_line(record) + "\n" if isinstance(record, dict) else line
