"""`brain-coord targets`: the configured upstreams and how they are doing."""

import typer

from brain_coord.cli.rows import print_rows
from brain_coord.cli.running import ask_running
from brain_coord.cli.store_access import AsJson, DataDir, print_json


def targets(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List the upstreams and what is wrong with them. It tells state, models and load of those of CLOUD_GPU and EXTERNAL_MODEL."""
    listed = ask_running(data_dir, "targets")
    if as_json:
        print_json(listed)
        return
    rows = []
    for each in listed:
        remarks = [each["reason"] or ""]
        remarks += [f"does not list {name}" for name in each["not_listed"]]
        remarks += [f"404 for {name}" for name in each["not_found"]]
        models = [model if model == served else f"{model} = {served}" for model, served in each["models"].items()]
        in_use = f"{each['active']}/{each['slots']}"
        shown = ", ".join(filter(None, remarks)) or "-"
        rows.append((each["name"], each["class"], each["state"], in_use, ", ".join(models), shown))
    if rows:
        print_rows(("upstream", "class", "state", "in use", "models", "remarks"), rows)
    else:
        typer.echo("no upstream is configured; see [[cloud]] and [[external]] in config.example.toml")
