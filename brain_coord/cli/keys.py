"""`brain-coord key`: API keys for those who send requests."""

import time
from typing import Annotated

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, open_store, print_json
from brain_coord.receipts.body import timestamp
from brain_coord.store import api_keys
from brain_coord.store.records import ApiKey, Plan
from brain_node.contract.nearest import did_you_mean

key_app = typer.Typer(no_args_is_help=True, help="API keys for those who send requests.")


@key_app.command("create")
def create(
    data_dir: DataDir,
    plan: Annotated[Plan, typer.Option(help="Limits and routing defaults of the key.")] = "free",
    label: Annotated[str | None, typer.Option(metavar="TEXT", help="A name to recognise the key by.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it. It is shown this once; the store keeps only its hash."""
    with open_store(data_dir, write=True) as connection:
        key, text = api_keys.create_key(connection, plan, label, time.time())
    if as_json:
        print_json({"key": text, "id": key.key_id, "plan": key.plan, "label": key.label})
        return
    typer.echo(text)
    typer.echo(
        f"{key.key_id}, plan {key.plan}; shown this once. Revoke it with: brain-coord key revoke {key.key_id}", err=True
    )


@key_app.command("list")
def list_(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List all keys by id and first characters."""
    with open_store(data_dir, write=False) as connection:
        keys = api_keys.list_keys(connection)
    if as_json:
        print_json([_members(key) for key in keys])
        return
    if keys:
        shown = ("id", "prefix", "plan", "label", "created", "revoked")
        print_rows(shown, [[members[name] for name in shown] for members in map(_members, keys)])
    else:
        typer.echo("no keys yet; make one with: brain-coord key create", err=True)


@key_app.command("revoke")
def revoke(data_dir: DataDir, key_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Revoke a key for good. A running coordinator refuses it within a second."""
    with open_store(data_dir, write=True) as connection:
        done = api_keys.revoke_key(connection, key_id, time.time())
        good = [] if done else [key.key_id for key in api_keys.list_keys(connection) if key.revoked_s is None]
    if not done:
        hint = did_you_mean(key_id, good, "See the ids with: brain-coord key list")
        fail("no_such_key", f"there is no key {key_id} that still holds", hint, USAGE)
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        typer.echo(f"revoked {key_id}")


def _members(key: ApiKey) -> dict[str, str | None]:
    return {
        "id": key.key_id,
        "prefix": key.prefix,
        "plan": key.plan,
        "label": key.label,
        "created": timestamp(key.created_s),
        "revoked": None if key.revoked_s is None else timestamp(key.revoked_s),
    }
