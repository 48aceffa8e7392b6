"""`brain-coord check-config`: whether a configuration can be used, and what is in force."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import CONFIG, AsJson, DataDir, fail, print_json
from brain_coord.config.faults import ConfigError, Fault
from brain_coord.config.load import Loaded, load
from brain_node.contract.catalog import CatalogError, load_catalog


def check_config(
    data_dir: DataDir,
    file: Annotated[
        Path | None,
        typer.Argument(
            show_default="as for serve", metavar="FILE", help="File to check; default: the one that serve would read."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a configuration as `serve` would read it. The environment counts too; nothing is started or changed."""
    named = file or (Path(value) if (value := os.environ.get("BRAIN_COORD_CONFIG")) else None)
    try:
        loaded = load(data_dir, None if named is None else named.expanduser().absolute())
        load_catalog(loaded.settings.catalog)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "code": error.code, "faults": [_fault(each) for each in error.faults]})
            raise typer.Exit(CONFIG) from None
        fail(error.code, error.message, error.next_step, CONFIG)
    except CatalogError as error:
        if as_json:
            print_json({"ok": False, "code": error.code, "faults": [{"message": error.message}]})
            raise typer.Exit(CONFIG) from None
        fail(error.code, error.message, error.next_step, CONFIG)
    if as_json:
        print_json(
            {
                "ok": True,
                "file": None if loaded.file is None else str(loaded.file),
                "warnings": list(loaded.warnings),
                "settings": loaded.shown(),
            }
        )
        return
    _print(loaded)


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "source": fault.source,
        "table": fault.table,
        "key": fault.key,
        "message": fault.message,
        "allowed": list(fault.allowed),
    }


def _print(loaded: Loaded) -> None:
    typer.echo(f"ok: {loaded.file or 'no file, environment and defaults only'}")
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}")
    rows = [(name, str(value), source) for name, value, source in _rows(loaded.shown()) if source != "default"]
    for kind in ("cloud", "external"):
        for at, upstream in enumerate(getattr(loaded.config, kind), 1):
            told = f"{upstream.name}: {upstream.url}, {len(upstream.models)} model(s)"
            rows.append((f"[[{kind}]] {at}", told, f"file {loaded.file}"))
    if rows:
        print_rows(("setting", "value", "from"), rows)
    else:
        typer.echo("every setting has its default")


def _rows(tables: dict[str, Any], before: str = "") -> list[tuple[str, Any, str]]:
    rows: list[tuple[str, Any, str]] = []
    for name, value in tables.items():
        if isinstance(value, dict) and set(value) == {"value", "source"}:
            rows.append((f"{before}{name}", value["value"], value["source"]))
        elif isinstance(value, dict):
            rows += _rows(value, f"{before}{name}.")
    return rows
