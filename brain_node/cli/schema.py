"""`brain-node schema`: the JSON Schema of what a command prints with `--json`."""

from typing import Annotated

import typer

from brain_node.cli.errors import fail
from brain_node.cli.status import print_json
from brain_node.contract.nearest import did_you_mean
from brain_node.exit_codes import USAGE


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Such as `status` or `engine list`; all of them when left out."),
    ] = None,
) -> None:
    """Print the JSON Schema of a command's --json. It is exact for this version."""
    from pydantic import TypeAdapter

    from brain_node.cli.shapes import SHAPES

    if not command:
        print_json({name: TypeAdapter(shape).json_schema() for name, shape in SHAPES.items()})
        return
    name = " ".join(command)
    if name not in SHAPES:
        fail("no_such_schema", f"`{name}` prints no JSON", did_you_mean(name, SHAPES, "brain-node schema"), USAGE)
    print_json(TypeAdapter(SHAPES[name]).json_schema())
