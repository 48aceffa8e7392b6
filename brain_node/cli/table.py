"""Tables: framed on a terminal; aligned plain text, without colours or wrapping, everywhere else."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print `rows` under `header` on standard output."""
    console = Console()
    if console.is_terminal:
        table = Table(*header, header_style="bold", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))  # a name in square brackets is no markup
        console.print(table)
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
