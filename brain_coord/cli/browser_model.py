"""`brain-coord browser-model`: the language models whose layers browser tabs may hold."""

from pathlib import Path
from typing import Annotated

import typer

from brain_coord.browser.checkpoint import CheckpointError
from brain_coord.browser.models import BrowserModel, add_model, model_files, read_model, remove_model
from brain_coord.cli.rows import print_rows
from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, own_folder, print_json
from brain_node.contract.nearest import did_you_mean

browser_model_app = typer.Typer(no_args_is_help=True, help="Language models whose layers browser tabs may hold.")


@browser_model_app.command("add")
def add(
    data_dir: DataDir,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A dense Qwen3 checkpoint: safetensors and tokenizer.")],
    model_id: Annotated[str, typer.Option("--id", metavar="NAME", help="Name under which clients ask for it.")],
    stages: Annotated[
        int, typer.Option(min=1, metavar="N", help="Into how many parts its layers are cut; a tab holds one or more.")
    ] = 1,
    replicas: Annotated[
        int, typer.Option(min=1, max=8, metavar="N", help="Tabs that hold each part, where there are enough.")
    ] = 2,
    as_json: AsJson = False,
) -> None:
    """Hash a checkpoint and offer it to tabs. A running coordinator takes it within seconds; nothing is copied."""
    try:
        with own_folder(data_dir):
            model = add_model(data_dir, folder, model_id, stages=stages, replicas=replicas)
    except CheckpointError as error:
        fail("bad_checkpoint", str(error), "Give the folder of a dense Qwen3 checkpoint", USAGE)
    if as_json:
        print_json(_members(model))
    else:
        typer.echo(
            f"{model.model_id}: {len(model.stages)} stages, {sum(s.size_bytes for s in model.stages) / 2**20:.0f} MB"
        )


@browser_model_app.command("list")
def list_(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List the models for tabs."""
    rows = _rows(data_dir)
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(tuple(rows[0]), [["" if value is None else str(value) for value in row.values()] for row in rows])
    else:
        typer.echo("no models for tabs yet; add one with: brain-coord browser-model add DIR --id ID", err=True)


@browser_model_app.command("remove")
def remove(data_dir: DataDir, model_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Offer a model to tabs no more; its checkpoint stays where it is."""
    with own_folder(data_dir):
        done = remove_model(data_dir, model_id)
    if not done:
        known = [each["id"] for each in _rows(data_dir)]
        hint = did_you_mean(model_id, map(str, known), "See: brain-coord browser-model list")
        fail("no_such_model", f"there is no model {model_id}", hint, USAGE)
    if as_json:
        print_json({"id": model_id, "removed": True})
    else:
        typer.echo(f"removed {model_id}")


def _rows(data_dir: Path) -> list[dict[str, object]]:
    rows = []
    for path in model_files(data_dir):
        try:
            rows.append(_members(read_model(path)))
        except CheckpointError as error:
            rows.append({"id": path.stem, "stages": None, "replicas": None, "bytes": None, "folder": str(error)})
    return rows


def _members(model: BrowserModel) -> dict[str, object]:
    return {
        "id": model.model_id,
        "stages": len(model.stages),
        "replicas": model.replicas,
        "bytes": sum(stage.size_bytes for stage in model.stages),
        "folder": str(model.folder),
    }
