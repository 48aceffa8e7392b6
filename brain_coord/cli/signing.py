"""`brain-coord keys`: the keys that sign receipts."""

import time

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import AsJson, DataDir, open_store, print_json
from brain_coord.receipts.history import SignerKey, publish_all
from brain_coord.store import signing
from brain_coord.store.signer_keys import list_signer_keys

keys_app = typer.Typer(no_args_is_help=True, help="The keys that sign receipts (API keys are under `key`).")


@keys_app.command("rotate")
def rotate(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Sign with a new key from now on, endorsed by the current one. A running coordinator takes it up by itself."""
    with open_store(data_dir, write=True) as connection:
        entry = signing.rotate(connection, data_dir, time.time())
    signing.finish_rotation(data_dir)
    _say(entry, f"chain {entry.chain} is signed by {entry.key_id} from now on", as_json)


@keys_app.command("new-chain")
def new_chain(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Begin a new chain under a new key, after the old key was lost. Earlier receipts stay and still verify."""
    with open_store(data_dir, write=True) as connection:
        entry = signing.new_chain(connection, data_dir, time.time())
    _say(entry, f"a new chain begins: {entry.chain}", as_json)


@keys_app.command("list")
def list_(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Show the key history of every chain. As JSON it is what `receipts verify --signer` takes."""
    with open_store(data_dir, write=False) as connection:
        histories = publish_all(list_signer_keys(connection))
    if as_json:
        print_json(histories)
        return
    if not histories:
        typer.echo("no signing key yet; the coordinator makes one at its first start", err=True)
        return
    print_rows(
        ("chain", "key", "from", "until", "endorsed by", "public key"),
        [
            [history["chain"], key["key_id"], key["from"], key["until"], key["endorsed_by"], key["public_key"]]
            for history in histories
            for key in history["keys"]
        ],
    )


def _say(entry: SignerKey, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json({"chain": entry.chain, "key_id": entry.key_id, "endorsed_by": entry.endorsed_by})
    else:
        typer.echo(sentence)
