"""The command line `brain-coord`."""

import sys

import typer

from brain_coord import __version__
from brain_coord.cli.browser_model import browser_model_app
from brain_coord.cli.check_config import check_config
from brain_coord.cli.database import db_app
from brain_coord.cli.keys import key_app
from brain_coord.cli.ledger import ledger
from brain_coord.cli.nodes import nodes_app
from brain_coord.cli.operator import operator_app
from brain_coord.cli.receipts import receipts_app
from brain_coord.cli.route import route
from brain_coord.cli.serve import serve_command
from brain_coord.cli.signing import keys_app
from brain_coord.cli.targets import targets
from brain_coord.cli.tokens import token_app
from brain_coord.cli.top import top

app = typer.Typer(
    name="brain-coord",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Route OpenAI requests to Brain Nodes and other targets; measure, explain and sign.",
)
app.command("serve")(serve_command)
app.command("check-config")(check_config)
app.command("route")(route)
app.command("targets")(targets)
app.command("top")(top)
app.command("ledger")(ledger)
app.add_typer(key_app, name="key")
app.add_typer(operator_app, name="operator")
app.add_typer(token_app, name="token")
app.add_typer(nodes_app, name="nodes")
app.add_typer(receipts_app, name="receipts")
app.add_typer(keys_app, name="keys")
app.add_typer(db_app, name="db")
app.add_typer(browser_model_app, name="browser-model")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the script."""
    # A stream that cannot encode a sign must not turn a good answer into a failure.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
