"""The command line `brain-coord`.

A command's module is imported when the command is used: serving needs a web framework and a database, most commands a
small part of that, and nobody should wait for the rest.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from brain_coord import __version__

COMMANDS: Final = {
    "serve": ("serve", "serve_command"),
    "check-config": ("check_config", "check_config"),
    "route": ("route", "route"),
    "targets": ("targets", "targets"),
    "top": ("top", "top"),
    "status": ("status", "status"),
    "ledger": ("ledger", "ledger"),
    "schema": ("schema", "schema"),
    "version": ("version", "version"),
    "key": ("keys", "key_app"),
    "operator": ("operator", "operator_app"),
    "token": ("tokens", "token_app"),
    "nodes": ("nodes", "nodes_app"),
    "tabs": ("tabs", "tabs_app"),
    "receipts": ("receipts", "receipts_app"),
    "keys": ("signing", "keys_app"),
    "db": ("database", "db_app"),
    "browser-model": ("browser_model", "browser_model_app"),
}
"""Every command: the module in this folder, and what it is called there."""


_TELL_THEMSELVES: Final = ("serve", "check-config")
"""Commands that show what is odd about the settings in their own way."""


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program with some of its commands, by default all."""
    app = typer.Typer(
        name="brain-coord",
        no_args_is_help=True,
        rich_markup_mode=None,  # boxes break names in narrow terminals and show Python's types
        context_settings={"help_option_names": ["--help", "-h"]},
        pretty_exceptions_enable=False,
        help="Route OpenAI requests to Brain Nodes and other targets; measure, explain and sign.",
    )
    app.callback()(_any_command)
    for name in names:
        module, attribute = COMMANDS[name]
        command = getattr(import_module(f"brain_coord.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


AskVersion = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


def _any_command(context: typer.Context, *, _version: AskVersion = False) -> None:
    # Imported only where a variable may be meant for us: the tables of the configuration take a while to load.
    if context.invoked_subcommand in _TELL_THEMSELVES or not any(_may_be_stray(name) for name in os.environ):
        return
    from brain_coord.config.load import stray_variables

    for line in stray_variables(os.environ):
        typer.echo(f"warning: {line}", err=True)


def _may_be_stray(name: str) -> bool:
    return name.startswith("BRAIN_") and name not in ("BRAIN_COORD_DATA_DIR", "BRAIN_COORD_CONFIG")


def __getattr__(name: str) -> Any:
    """`app`, the whole program, for whoever documents or tests it."""
    if name == "app":
        return build()
    raise AttributeError(name)


def main() -> None:
    """Entry point of the script."""
    # A stream that cannot encode a sign must not turn a good answer into a failure.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    completing = "_BRAIN_COORD_COMPLETE" in os.environ
    try:
        build([wanted] if wanted in COMMANDS and not completing else COMMANDS)()
    except OSError as error:
        # What no command expects: a file or folder that belongs to somebody else, a full disk under its output.
        from brain_coord.cli.store_access import CONFIG, TEMPORARY

        place = f": {error.filename}" if error.filename else ""
        theirs = isinstance(error, PermissionError)
        step = (
            "run it as the user that the coordinator runs as, or with sudo" if theirs else "mend that, and run it again"
        )
        sys.stderr.write(f"error [system]: {error.strerror or error}{place}\n  next: {step}\n")
        sys.exit(CONFIG if theirs else TEMPORARY)
