"""`brain-coord token`: join tokens that admit nodes."""

import time
from typing import Annotated, Any

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, open_store, print_json
from brain_coord.cli.times import seconds_of
from brain_coord.receipts.body import timestamp
from brain_coord.store import join_tokens
from brain_coord.store.records import JoinToken
from brain_node.contract.nearest import did_you_mean

token_app = typer.Typer(no_args_is_help=True, help="Join tokens that admit nodes.")


@token_app.command("create")
def create(
    data_dir: DataDir,
    operator: Annotated[
        bool, typer.Option("--operator", help="Nodes that join with it are the operator's own hardware.")
    ] = False,
    uses: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many nodes it admits; any number when not given.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it admits new nodes, such as 12h or 7d.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="TEXT", help="A name to recognise the token by.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown this once; the store keeps only its hash."""
    ttl_s = None if ttl is None else seconds_of(ttl)
    with open_store(data_dir, write=True) as connection:
        token, text = join_tokens.create_token(
            connection, time.time(), operator=operator, uses=uses, ttl_s=ttl_s, label=label
        )
    if as_json:
        print_json({"token": text, **_members(token)})
        return
    typer.echo(text)
    typer.echo(f"{token.token_id}; shown this once. A node takes it by --token-file or BRAIN_NODE_TOKEN", err=True)


@token_app.command("list")
def list_(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List all tokens by id and first characters."""
    with open_store(data_dir, write=False) as connection:
        tokens = join_tokens.list_tokens(connection)
    if as_json:
        print_json([_members(token) for token in tokens])
        return
    if not tokens:
        typer.echo("no tokens yet; make one with: brain-coord token create", err=True)
        return
    heads = ("id", "prefix", "operator", "uses left", "label", "created", "expires", "revoked")
    print_rows(heads, map(_row, tokens))


@token_app.command("revoke")
def revoke(data_dir: DataDir, token_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Revoke a token for good. Nodes that it has admitted stay; ban those that should not."""
    with open_store(data_dir, write=True) as connection:
        done = join_tokens.revoke_token(connection, token_id, time.time())
        good = [] if done else [each.token_id for each in join_tokens.list_tokens(connection) if not each.revoked_s]
    if not done:
        hint = did_you_mean(token_id, good, "See the ids with: brain-coord token list")
        fail("no_such_token", f"there is no token {token_id} that still holds", hint, USAGE)
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        typer.echo(f"revoked {token_id}")


def _row(token: JoinToken) -> list[str | None]:
    shown = _members(token)
    uses = "any" if token.uses_left is None else str(token.uses_left)
    times = [shown["created"], shown["expires"], shown["revoked"]]
    return [token.token_id, token.prefix, "yes" if token.operator else "no", uses, token.label, *times]


def _members(token: JoinToken) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "prefix": token.prefix,
        "operator": token.operator,
        "label": token.label,
        "uses_left": token.uses_left,
        "created": timestamp(token.created_s),
        "expires": None if token.expires_s is None else timestamp(token.expires_s),
        "revoked": None if token.revoked_s is None else timestamp(token.revoked_s),
    }
