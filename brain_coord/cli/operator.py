"""`brain-coord operator`: who may log in to the operator's pages."""

import time

import typer

from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, own_folder, print_json
from brain_coord.web.operator.secret import create_secret, revoke_secret

operator_app = typer.Typer(no_args_is_help=True, help="Who may log in to the pages at /network/operator.")


@operator_app.command("create")
def create(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Make the operator's secret and print it, this once. An earlier one and its sessions end; no restart is needed."""
    with own_folder(data_dir):
        text = create_secret(data_dir, time.time())
    if as_json:
        print_json({"secret": text})
        return
    typer.echo(text)
    typer.echo("shown this once; log in with it at /network/operator", err=True)


@operator_app.command("revoke")
def revoke(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Let nobody log in any more, and end every session."""
    with own_folder(data_dir):
        done = revoke_secret(data_dir)
    if not done:
        fail("no_operator", "nobody can log in", "Make a secret with: brain-coord operator create", USAGE)
    if as_json:
        print_json({"revoked": True})
    else:
        typer.echo("nobody can log in any more")
