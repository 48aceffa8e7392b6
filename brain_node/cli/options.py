"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        readable=False,  # told by whoever opens it, with what to do
        metavar="FOLDER",
        help="The agent's data folder. (env: BRAIN_NODE_DATA_DIR)",
        show_default="the user's data folder",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
