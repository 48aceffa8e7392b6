"""Keys and chains by which receipts are chosen: one that is not there is an error, never an empty answer."""

from sqlalchemy import Connection

from brain_coord.cli.store_access import USAGE, fail
from brain_coord.store.api_keys import list_keys
from brain_coord.store.receipt_rows import page_of_receipts
from brain_coord.store.signer_keys import list_signer_keys
from brain_node.contract.nearest import did_you_mean


def require_chain(connection: Connection, chain: str | None) -> None:
    """End the command where no key of this store ever signed that chain."""
    names = [each.chain for each in list_signer_keys(connection)]
    if chain is not None and chain not in names:
        hint = did_you_mean(chain, names, "See the chains with: brain-coord keys list")
        fail("no_such_chain", f"there is no chain {chain} in this store", hint, USAGE)


def require_key(connection: Connection, key_id: str | None) -> None:
    """End the command where that API key neither is here nor has receipts here."""
    if key_id is None or page_of_receipts(connection, key_id=key_id, limit=1):
        return
    names = [each.key_id for each in list_keys(connection)]
    if key_id not in names:
        hint = did_you_mean(key_id, names, "See the ids with: brain-coord key list")
        fail("no_such_key", f"there is no key {key_id}, and no receipt of it", hint, USAGE)
