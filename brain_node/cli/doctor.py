"""`brain-node doctor`: what is wrong here, and what to do about it."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from brain_node.cli.errors import fail_with
from brain_node.cli.options import AsJson, DataDir
from brain_node.cli.status import print_json
from brain_node.settings import Settings, SettingsError, resolve


def doctor(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Address of the coordinator. (env: BRAIN_NODE_URL)", show_default=False),
    ] = None,
    engine: Annotated[str | None, typer.Option(metavar="KIND", help="vllm, attach or mock. Default: vllm.")] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="ID", help="Model meant to be served; repeat it.")] = None,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Allowlist that replaces the shipped one.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Private CA of the coordinator, PEM.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check all that `join` needs. Driver, engine, models, disk, ports, orphans, clock, proxy, TLS and the way to the coordinator are looked at.

    Ends with 0 when nothing stands in the way of `join`, else with the exit code that `join` would end with.
    """
    flags = {"url": url, "engine": engine, "models": model, "catalog": catalog, "ca_file": ca_file}
    try:
        settings = resolve(flags, os.environ, data_dir)
    except SettingsError as error:
        fail_with(error)
    findings = asyncio.run(_examine(settings, show=not as_json))
    failed = [finding for finding in findings if finding.level == "fail"]
    if as_json:
        print_json({"ok": not failed, "findings": [finding.as_json() for finding in findings]})
    else:
        warned = sum(finding.level == "warn" for finding in findings)
        typer.echo(f"{len(failed)} failed, {warned} to know, {len(findings) - len(failed) - warned} fine")
    if failed:
        raise typer.Exit(failed[0].exit_code)


async def _examine(settings: Settings, *, show: bool) -> list[Any]:
    from brain_node.agent.doctor.examine import examine

    findings = []
    async for finding in examine(settings, os.environ):
        findings.append(finding)
        if show:
            typer.echo(f"{finding.level:<5} {finding.check:<12} {finding.message}")
            if finding.next_step and finding.level != "ok":
                typer.echo(f"{'':<18} next: {finding.next_step}")
    return findings
