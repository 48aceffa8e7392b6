"""Rows for people: a table on a terminal, tab-separated lines elsewhere, nothing ever cut off."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_rows(heads: Sequence[str], rows: Iterable[Sequence[str | None]]) -> None:
    """Print rows under their heads; `None` is an empty cell."""
    cells = [["" if cell is None else cell for cell in row] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table()
        for position, head in enumerate(heads):
            table.add_column(head, overflow="fold", no_wrap=position == 0)  # an id is there to be copied
        for row in cells:
            table.add_row(*map(escape, row))
        console.print(table)
        return
    for line in [list(heads), *cells]:
        sys.stdout.write("\t".join(" ".join(cell.split()) for cell in line) + "\n")
