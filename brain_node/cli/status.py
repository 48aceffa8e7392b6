"""`brain-node status`: what the agent of this machine is doing, also while the coordinator is away."""

import os
import sys
from typing import Any

import orjson
import typer

from brain_node.cli.errors import fail, fail_with
from brain_node.cli.options import AsJson, DataDir
from brain_node.exit_codes import TEMPORARY, UNAVAILABLE
from brain_node.local_api.client import NoAgentError, ask
from brain_node.settings import data_dir_of


def ask_agent(data_dir: DataDir, path: str, method: str = "GET", *, as_json: bool = False) -> dict[str, Any]:
    """One answer of the running agent; leaves with a plain message and exit code when there is none."""
    folder, _ = data_dir_of(data_dir, os.environ)
    try:
        return ask(folder, path, method)
    except NoAgentError as error:
        if as_json:
            print_json({"running": False, "data_dir": str(folder)})
        fail("not_running", str(error), "brain-node join URL, or name its folder with --data-dir", UNAVAILABLE)
    except PermissionError as error:
        fail_with(error)
    except OSError as error:
        fail("no_answer", f"the agent does not answer: {error}", "brain-node logs", TEMPORARY)


def print_json(body: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode() + "\n")


def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show what the agent of this machine is doing."""
    state = ask_agent(data_dir, "/status", as_json=as_json)
    if as_json:
        print_json(state)
        return
    typer.echo("\n".join(lines_of(state)))


def lines_of(state: dict[str, Any]) -> list[str]:
    """The state as plain lines."""
    link, jobs = state["coordinator"], state["jobs"]
    lines = [
        f"node         {state['node_id']}  (brain-node {state['version']}, process {state['pid']})",
        f"coordinator  {link['url']}  {link['state']} for {link['for_s']:.0f} s",
    ]
    if link["fault"] and link["state"] != "online":
        retry = f"; next try in {link['retry_in_s']:.0f} s" if link["retry_in_s"] is not None else ""
        lines.append(f"             {link['fault']['message']}{retry}")
        if link["fault"]["next_step"]:
            lines.append(f"             next: {link['fault']['next_step']}")
    if state["draining"]:
        lines.append(f"draining     yes, asked by {', '.join(state['draining_for'])}")
    lines.append(
        f"jobs         {jobs['active']} of {jobs['slots']} slots in use; finished: {_counts(jobs['finished'])}"
    )
    lines += [f"engine       {engine['model']}  {engine['sentence']}" for engine in state["engines"]]
    lines += [f"not accepted {each['model']}: {each['reason']}" for each in link["refused"]]
    return [*lines, f"log          {state['log']}"]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"
