"""`brain-node engine`: install an engine into an environment of its own, and list the ones that are there."""

import json
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import platformdirs
import typer

from brain_node import exit_codes
from brain_node.contract.nearest import did_you_mean
from brain_node.engine.environments import (
    DEFAULT_VERSION,
    TORCH_INDEX_VARIABLE,
    EngineEnv,
    Flavour,
    default_flavour,
    engines_dir,
    list_environments,
)
from brain_node.engine.errors import EngineError
from brain_node.engine.install import InstallOptions, install_engine, plan_install
from brain_node.engine.progress import progress_for

app = typer.Typer(no_args_is_help=True, help="Install an engine (vLLM), and list what is there.")

INTERRUPTED = 130


def _default_data_dir() -> Path:
    return platformdirs.user_data_path("brain-node")


DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        readable=False,  # told by whoever opens it, with what to do
        envvar="BRAIN_NODE_DATA_DIR",
        default_factory=_default_data_dir,
        metavar="FOLDER",
        help="The node's data folder; engines lie in its folder `engines`, or in $BRAIN_NODE_ENGINES_DIR.",
        show_default="the user's data folder",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command()
def install(
    data_dir: DataDir,
    cpu: Annotated[bool, typer.Option("--cpu", help="The engine for machines without an NVIDIA card.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", help="The regular engine, for NVIDIA cards.")] = False,
    version: Annotated[str, typer.Option("--version", metavar="VERSION", help="Version of vLLM.")] = DEFAULT_VERSION,
    torch_index: Annotated[
        str | None,
        typer.Option(
            "--torch-index",
            envvar=TORCH_INDEX_VARIABLE,
            metavar="URL",
            help="A package index that has torch for CPU, tried before pip's own sources.",
            show_envvar=True,
        ),
    ] = None,
    reinstall: Annotated[bool, typer.Option("--reinstall", help="Make it anew even if it is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be installed where, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Install vLLM into an environment of its own. CPU: about 1 minute and 2.5 GB; CUDA: several minutes and 9 GB.

    Without --cpu or --cuda the machine decides: CUDA where an NVIDIA driver is, else CPU. Can be stopped at any time
    and run again: it goes on where it was.
    """
    if cpu and cuda:
        raise typer.BadParameter("choose one of --cpu and --cuda")
    flavour = Flavour.CPU if cpu else Flavour.CUDA if cuda else default_flavour()
    options = InstallOptions(
        engines=engines_dir(data_dir),
        flavour=flavour,
        version=version,
        torch_index=torch_index or None,
        reinstall=reinstall,
    )
    if dry_run:
        _show_plan(options, as_json=as_json)
        return
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        env = install_engine(options, progress_for())
    except EngineError as fault:
        _fail(fault, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo("\nStopped. What was done so far is kept: run the same command to go on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(env.as_json()))
    else:
        typer.echo(f"Engine {env.name} (torch {env.torch}) is ready in {env.root}")


@app.command(name="list")
def list_engines(data_dir: DataDir, as_json: AsJson = False) -> None:
    """List the engine environments on this machine."""
    engines = engines_dir(data_dir)
    found = list_environments(engines)
    if as_json:
        typer.echo(json.dumps({"engines_dir": str(engines), "engines": [env.as_json() for env in found]}))
        return
    if not found:
        typer.echo(f"No engine in {engines}. Next: brain-node engine install")
    for env in found:
        typer.echo(f"{env.name:<14} torch {env.torch:<14} {env.root}")


@app.command()
def show(
    data_dir: DataDir,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Such as cpu-0.32.0; the one a join would use if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show one engine environment."""
    found = list_environments(engines_dir(data_dir))
    wanted = [env for env in found if (env.name == name if name else env.flavour is default_flavour())]
    if not wanted:
        names = ", ".join(env.name for env in found) or "none"
        fault = EngineError(
            "engine_missing",
            f"no engine {name or 'for ' + default_flavour().value} is installed (installed: {names})",
            did_you_mean(name or "", (env.name for env in found), "run: brain-node engine install"),
        )
        _fail(fault, as_json=as_json)
    _show(wanted[0], as_json=as_json)


def _show(env: EngineEnv, *, as_json: bool) -> None:
    facts = env.as_json()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for key, value in facts.items():
        typer.echo(f"{key:<13} {value}")


def _show_plan(options: InstallOptions, *, as_json: bool) -> None:
    plan = plan_install(options)
    facts: dict[str, Any] = {
        "package": plan.package,
        "path": str(plan.root),
        "need_bytes": plan.need_bytes,
        "free_bytes": plan.free_bytes,
        "present": plan.present,
    }
    if as_json:
        typer.echo(json.dumps(facts))
    elif plan.present:
        typer.echo(f"{plan.package} is already in {plan.root}; nothing to do")
    else:
        typer.echo(
            f"Would install {plan.package} into {plan.root} "
            f"(wants {plan.need_bytes / 1e9:.0f} GB free, {plan.free_bytes / 1e9:.0f} GB are)"
        )


def _fail(fault: EngineError, *, as_json: bool) -> NoReturn:
    if as_json:
        shape = {"error": {"code": fault.code, "message": fault.message, "next_step": fault.next_step}}
        typer.echo(json.dumps(shape))
    typer.echo(f"error [{fault.code}]: {fault.message}\n  next: {fault.next_step}", err=True)
    raise typer.Exit(exit_codes.UNAVAILABLE)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """A polite kill ends an install the way Ctrl-C does: with its children."""
    del number, frame
    os.kill(os.getpid(), signal.SIGINT)
