"""The command line `brain-node`."""

import os
import sys
from typing import Annotated

import typer

from brain_node import __version__
from brain_node.cli import control, doctor, engine, gpus, identity, join, logs, models, schema, service, status
from brain_node.cli.errors import fail_with
from brain_node.settings import stray_variables

app = typer.Typer(
    name="brain-node",
    no_args_is_help=True,
    rich_markup_mode=None,  # boxes break names in narrow terminals and show Python's types
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="Lend this machine's GPUs to a coordinator.",
)
_TELL_THEMSELVES = ("join", "doctor", "service")
"""Commands that show what is odd about the settings in their own way."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


AskVersion = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


@app.callback()
def _any_command(context: typer.Context, *, _version: AskVersion = False) -> None:
    if context.invoked_subcommand not in _TELL_THEMSELVES:
        for line in stray_variables(os.environ):
            typer.echo(f"warning: {line}", err=True)


app.command()(join.join)
app.command()(status.status)
app.command()(control.drain)
app.command()(control.resume)
app.command()(control.stop)
app.command()(control.why)
app.command()(doctor.doctor)
app.command()(gpus.gpus)
app.command()(models.models)
app.command()(logs.logs)
app.command()(schema.schema)
app.add_typer(identity.app, name="identity")
app.add_typer(service.app, name="service")
app.add_typer(engine.app, name="engine")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the script."""
    if os.environ.get("NO_COLOR"):
        # Colour libraries drop colours then but keep bold and cursor movements; for a dumb terminal they send none.
        os.environ["TERM"] = "dumb"
    # A stream that cannot encode a sign must not turn a healthy answer into a failure.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="brain-node")
    except Exception as error:
        # What no command expects, such as a folder that belongs to somebody else, is told like everything else.
        try:
            fail_with(error)
        except typer.Exit as end:
            sys.exit(end.exit_code)
