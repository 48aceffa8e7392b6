"""`brain-coord ledger`: who did how much work, and who used it, from the receipts."""

import csv
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import AsJson, DataDir, fail, open_store, print_json
from brain_coord.cli.times import moment_of
from brain_coord.receipts.accounts import Accounts
from brain_coord.receipts.columns import cell
from brain_coord.store.receipt_rows import page_of_receipts
from brain_node.contract.catalog import Catalog, CatalogError, load_catalog

PAGE: Final = 500
COLUMNS: Final = (
    "side",
    "id",
    "model",
    "requests",
    "completed",
    "prompt_tokens",
    "completion_tokens",
    "reported_tokens",
    "work_units",
    "amount_usd",
    "unpriced_requests",
)


def ledger(
    data_dir: DataDir,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From this time on (ISO 8601, UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Before this time (ISO 8601, UTC).")] = None,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Model allowlist with the parameters, if not the shipped one.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sum up tokens, work and prices for each node and key. Rows are by model; a work unit is parameters x tokens / 2^20."""
    models = _catalog(catalog)
    from_s, to_s = moment_of(since), moment_of(until)
    accounts = Accounts()
    with open_store(data_dir, write=False) as connection:
        after = ("", 0)
        while page := page_of_receipts(connection, after=after, from_s=from_s, to_s=to_s, limit=PAGE):
            for sealed in page:
                accounts.add(sealed.envelope()["body"])
            after = (page[-1].chain, page[-1].seq)

    def params_of(model: str) -> float | None:
        known = models.get(model)
        return None if known is None else known.params_b * 1e9

    rows = accounts.rows(params_of)
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(COLUMNS)
        writer.writerows([[cell(row[name]) for name in COLUMNS] for row in rows])
    elif rows:
        print_rows(COLUMNS, [[_shown(row[name]) for name in COLUMNS] for row in rows])
    else:
        typer.echo("no receipts in that time", err=True)


def _catalog(path: Path | None) -> Catalog:
    try:
        return load_catalog(path)
    except CatalogError as error:
        fail(error.code, error.message, error.next_step)


def _shown(value: Any) -> str:
    return "UNKNOWN" if value is None else str(value)
