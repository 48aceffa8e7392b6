"""`brain-coord targets`: the configured upstreams and how they are doing."""

import typer
from rich.console import Console
from rich.table import Table

from brain_coord.cli.running import ask_running
from brain_coord.cli.store_access import AsJson, DataDir, print_json


def targets(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List the upstreams of CLOUD_GPU and EXTERNAL_MODEL: state, models, load, and what is wrong with them."""
    listed = ask_running(data_dir, "targets")
    if as_json:
        print_json(listed)
        return
    table = Table("upstream", "class", "state", "in use", "models", "remarks")
    for each in listed:
        remarks = [each["reason"] or ""]
        remarks += [f"does not list {name}" for name in each["not_listed"]]
        remarks += [f"404 for {name}" for name in each["not_found"]]
        models = [model if model == served else f"{model} = {served}" for model, served in each["models"].items()]
        table.add_row(
            each["name"],
            each["class"],
            each["state"],
            f"{each['active']}/{each['slots']}",
            "\n".join(models),
            "\n".join(filter(None, remarks)) or "-",
        )
    if listed:
        Console().print(table)
    else:
        typer.echo("no upstream is configured; see [[cloud]] and [[external]] in config.example.toml")
