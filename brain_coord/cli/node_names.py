"""Which node a person means: the whole id, or enough of its first digits."""

from pathlib import Path

from brain_coord.admin import AdminError, NotRunning, ask
from brain_coord.cli.store_access import USAGE, fail, open_store
from brain_coord.store import nodes as stored
from brain_node.contract.nearest import did_you_mean


def one_node(data_dir: Path, typed: str) -> str:
    """The id of the one node that is meant; anything else ends the command."""
    known = _known(data_dir)
    wanted = typed.strip().upper()
    if not wanted.startswith("N-"):
        wanted = "N-" + wanted
    wanted = wanted.rstrip("…")
    matching = [node_id for node_id in known if node_id.startswith(wanted)]
    if not matching:
        hint = did_you_mean(wanted, known, "See the ids with: brain-coord nodes")
        fail("no_such_node", f"no node {typed} has joined", hint, USAGE)
    if len(matching) > 1 and wanted not in matching:
        fail("ambiguous_node", f"{typed} could be {', '.join(matching[:5])}", "Give more digits of the id", USAGE)
    return wanted if wanted in matching else matching[0]


def _known(data_dir: Path) -> list[str]:
    try:
        return [str(node["node_id"]) for node in ask(data_dir, "nodes")]
    except (NotRunning, AdminError):
        with open_store(data_dir, write=False) as connection:
            return [node.node_id for node in stored.list_nodes(connection)]
