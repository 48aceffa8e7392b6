"""`brain-node identity`: show, save and restore the key that makes this node the node it is."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from brain_node.cli.errors import fail, fail_with
from brain_node.cli.options import AsJson, DataDir
from brain_node.cli.status import print_json
from brain_node.contract.identity import Identity, IdentityError, load_identity
from brain_node.contract.secret_file import read_private, write_private
from brain_node.exit_codes import CONFIG, TEMPORARY, UNAVAILABLE, USAGE
from brain_node.settings import KEY_NAME, data_dir_of

app = typer.Typer(no_args_is_help=True, help="Show, save or restore this node's identity.")


@app.command()
def show(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print the node id. A coordinator keeps this node's reputation under it."""
    path = _path(data_dir)
    identity = _load(path)
    if as_json:
        print_json({"node_id": identity.node_id, "public_key": identity.public_key.hex(), "path": str(path)})
    else:
        typer.echo(f"{identity.node_id}  ({path})")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write (0600); `-` for standard output.")],
    data_dir: DataDir = None,
) -> None:
    """Save the private key. Whoever has it can be this node: treat the file as a password."""
    identity = _load(_path(data_dir))
    if str(file) == "-":
        sys.stdout.write(identity.export())
        return
    if file.exists():
        fail("file_exists", f"{file} is there already", "name another file", USAGE)
    try:
        write_private(file, identity.export())
    except OSError as error:
        fail("not_written", f"cannot write {file}: {error.strerror}", "name another file", UNAVAILABLE)
    typer.echo(f"{identity.node_id} saved in {file}")


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `export` wrote; `-` for standard input.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the identity that is there.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Take over a saved identity. Two machines must never run with the same one."""
    from brain_node.agent.lock import AlreadyRunningError, DataDirLock

    path = _path(data_dir)
    try:
        identity = Identity.parse(sys.stdin.read() if str(file) == "-" else read_private(file)[0])
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        fail("not_read", f"cannot read {file}: {reason}", "check the path", USAGE)
    except IdentityError as error:
        fail("identity", str(error), "name a file that `brain-node identity export` wrote", USAGE)
    if path.exists() and not force:
        step = "save it with `brain-node identity export`, then use --force"
        fail("identity_exists", f"{path} holds an identity already", step, CONFIG)
    try:
        lock = DataDirLock(path.parent)
    except AlreadyRunningError as error:
        fail("already_running", str(error), "brain-node stop", TEMPORARY)
    write_private(path, identity.export())
    lock.release()
    typer.echo(f"{identity.node_id} is now this node's identity")


def _path(data_dir: Path | None) -> Path:
    return data_dir_of(data_dir, os.environ)[0] / KEY_NAME


def _load(path: Path) -> Identity:
    try:
        return load_identity(path)
    except FileNotFoundError:
        fail(
            "no_identity",
            f"there is no identity in {path.parent}",
            "the first `brain-node join` makes one",
            UNAVAILABLE,
        )
    except IdentityError as error:
        fail_with(error)
