"""Holding the JSON of commands against the records from which their schemas are made."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter


def hold(shapes: Mapping[str, Any], command: str, text: str) -> Any:
    """The JSON that a command printed, once it is what its schema says; strictly, and without further members."""
    return TypeAdapter(shapes[command]).validate_json(text)


def commands_with_json(command: Any, name: str = "") -> Iterator[str]:
    """Every command under a command that has `--json`, without the program's name."""
    children = getattr(command, "commands", {})
    if any("--json" in parameter.opts for parameter in command.params) and (
        not children or command.invoke_without_command
    ):
        yield name
    for child, under in children.items():
        yield from commands_with_json(under, f"{name} {child}".strip())
