"""Which node or tab a person means: the whole id, or enough of its first digits."""

from collections.abc import Collection
from typing import Literal

from brain_coord.cli.store_access import USAGE, fail
from brain_node.contract.nearest import did_you_mean

DONE = {"node": "has joined", "tab": "has lent here"}


def one_of(kind: Literal["node", "tab"], typed: str, known: Collection[str]) -> str:
    """The one of the known ids that is meant; anything else ends the command."""
    wanted = typed.strip().upper().rstrip("…")
    wanted = wanted if wanted.startswith("N-") else f"N-{wanted}"
    matching = sorted(each for each in known if each.startswith(wanted))
    if not matching:
        hint = did_you_mean(wanted, known, f"See the ids with: brain-coord {kind}s")
        fail(f"no_such_{kind}", f"no {kind} {typed} {DONE[kind]}", hint, USAGE)
    if len(matching) > 1 and wanted not in matching:
        fail(f"ambiguous_{kind}", f"{typed} could be {', '.join(matching[:5])}", "Give more digits of the id", USAGE)
    return wanted if wanted in matching else matching[0]
