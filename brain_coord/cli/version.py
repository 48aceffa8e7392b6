"""`brain-coord version`."""

import typer

from brain_coord import __version__


def version() -> None:
    """Print the version."""
    typer.echo(__version__)
