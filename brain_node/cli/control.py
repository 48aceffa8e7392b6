"""`brain-node drain`, `resume`, `stop` and `why`: short words to the running agent."""

from typing import Any

import typer

from brain_node.cli.options import AsJson, DataDir
from brain_node.cli.status import ask_agent, print_json


def drain(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Take no new jobs; running ones go on. Stays so over restarts, until `resume`."""
    answer = ask_agent(data_dir, "/drain", "POST", as_json=as_json)
    print_json(answer) if as_json else typer.echo("draining: no new jobs are taken; `brain-node resume` ends it")
    _warn_if_forgotten(answer)


def resume(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Take jobs again after `drain`."""
    answer = ask_agent(data_dir, "/resume", "POST", as_json=as_json)
    print_json(answer) if as_json else typer.echo("jobs are taken again")
    _warn_if_forgotten(answer)


def _warn_if_forgotten(answer: dict[str, Any]) -> None:
    if not answer["remembered"]:
        typer.echo("it could not be written down, so a restart forgets it; next: brain-node logs", err=True)


def stop(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Stop the agent; running streams may end first. No new jobs; what runs has the drain limit, and a second `stop` ends it at once."""
    answer = ask_agent(data_dir, "/stop", "POST", as_json=as_json)
    print_json(answer) if as_json else typer.echo("stopping")


def why(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Say why the coordinator skipped this node. Counts of the last hour, by reason."""
    answer = ask_agent(data_dir, "/why", as_json=as_json)
    if as_json:
        print_json(answer)
        return
    lines = [f"{reason}: skipped {count} times" for reason, count in (answer["skipped"] or {}).items()]
    lines += [f"{each['model']}: not accepted: {each['reason']}" for each in answer["refused_models"]]
    lines += [f"{each['count']} x {each['code']}: {each['message']}" for each in answer["notices"]]
    if answer["link"] != "online":
        lines.insert(0, f"this node is not linked ({answer['link']}); see `brain-node status`")
    typer.echo("\n".join(lines) or "the coordinator said nothing about this node in the last hour")
