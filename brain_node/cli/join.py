"""`brain-node join`: lend this machine to a coordinator."""

import contextlib
import logging
import os
import resource
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brain_node.cli.completion import complete_model
from brain_node.cli.errors import fail, fail_with
from brain_node.cli.options import DataDir
from brain_node.cli.unit import OPEN_FILES
from brain_node.exit_codes import TEMPORARY
from brain_node.settings import Settings, SettingsError, resolve

if TYPE_CHECKING:
    from brain_node.agent.agent import Agent
    from brain_node.agent.running import AgentControl, Show


def join(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Address of the coordinator. (env: BRAIN_NODE_URL)", show_default=False),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File that holds the join token. (env: BRAIN_NODE_TOKEN_FILE, or BRAIN_NODE_TOKEN itself)",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Model to serve; repeat it, or say `auto`. (env: BRAIN_NODE_MODELS)",
            autocompletion=complete_model,
        ),
    ] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Allowlist that replaces the shipped one. (env: BRAIN_NODE_CATALOG)"),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(metavar="TOKENS", help="Most tokens a request; less needs less memory. (env: BRAIN_NODE_CONTEXT)"),
    ] = None,
    slots: Annotated[str | None, typer.Option(metavar="N", help="Most jobs at a time. (env: BRAIN_NODE_SLOTS)")] = None,
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where this machine is. (env: BRAIN_NODE_REGION)")
    ] = None,
    ask: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Asked price, USD per million tokens. (env: BRAIN_NODE_ASK_USD_PER_1M)"),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="vllm (launched and supervised), attach (a server that runs already) or mock. Default: vllm. (env: BRAIN_NODE_ENGINE)",
        ),
    ] = None,
    engine_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="attach: address of the running server. (env: BRAIN_NODE_ENGINE_URL)"),
    ] = None,
    serve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=SERVED_NAME", help="attach: ID=SERVED_NAME for each model; repeat it. (env: BRAIN_NODE_SERVE)"
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private CA of the coordinator, PEM. (env: BRAIN_NODE_CA_FILE)")
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds that streams get at a stop. Default: 60. (env: BRAIN_NODE_DRAIN_TIMEOUT)",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="debug, info or warning. Default: info. (env: BRAIN_NODE_LOG_LEVEL)"),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Log lines instead of the live panel, also on a terminal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Log lines as JSON. (env: BRAIN_NODE_LOG_JSON)")] = False,
    data_dir: DataDir = None,
) -> None:
    """Lend this machine to a coordinator, until stopped."""
    flags: dict[str, Any] = {
        "url": url,
        "token_file": token_file,
        "models": model,
        "catalog": catalog,
        "context": context,
        "slots": slots,
        "region": region,
        "ask_usd_per_1m": ask,
        "engine": engine,
        "engine_url": engine_url,
        "serve": serve,
        "ca_file": ca_file,
        "drain_timeout_s": drain_timeout,
        "log_level": log_level,
        "log_json": True if as_json else None,
    }
    try:
        settings = resolve(flags, os.environ, data_dir)
    except SettingsError as error:
        fail_with(error)
    raise typer.Exit(_run(settings, panel=not plain))


def _run(settings: Settings, *, panel: bool) -> int:
    # Imported here: `status` and `--help` must not pay for the agent.
    import structlog
    import uvloop

    from brain_node.agent.build import build_agent
    from brain_node.agent.lock import AlreadyRunningError, DataDirLock
    from brain_node.agent.logs import configure_logs

    try:
        lock = DataDirLock(settings.data_dir)
    except AlreadyRunningError as error:
        fail("already_running", str(error), "brain-node status, or brain-node stop", TEMPORARY)
    except OSError as error:
        fail_with(error)
    recent, show = _panel() if panel and not settings.log_json else (None, None)
    configure_logs(
        settings.data_dir,
        as_json=settings.log_json,
        level=settings.log_level,
        secrets=settings.secrets,
        recent=recent,
    )
    _raise_open_files()
    log = structlog.get_logger(__name__)
    for warning in settings.warnings:
        log.warning("settings", note=warning)
        if show is not None:  # the panel shows the log only once the agent runs
            typer.echo(f"warning: {warning}", err=True)
    try:
        agent = build_agent(settings)
        code = uvloop.run(_life(agent, show))
    except Exception as error:
        fail_with(error)
    finally:
        lock.release()
    if agent.fault is not None and show is not None:
        # The panel is the last thing on the screen; what ended the agent has to be below it, in plain words.
        fail(agent.fault.code, agent.fault.message, agent.fault.next_step, code)
    return code


def _raise_open_files() -> None:
    """Have as many files open as the jobs may need: each takes two, and a shell's usual limit is 1,024.

    No more than a service has: engines inherit it, and some programs go through all that there could be.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system that bounds it elsewhere too
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _life(agent: "Agent", show: "Show | None") -> int:
    from brain_node.agent.running import run_agent

    code = await run_agent(agent, show)
    if agent.hurried:
        # Told twice: a name server or driver call that hangs in some thread must not hold up the end.
        logging.shutdown()
        os._exit(code)
    return code


def _panel() -> "tuple[deque[str], Show] | tuple[None, None]":
    """The live panel, where both streams are a terminal that can draw one; else nothing."""
    from rich.console import Console

    from brain_node.cli.panel import show_panel

    console = Console(stderr=True)
    if not (console.is_terminal and sys.stdout.isatty()) or console.is_dumb_terminal:
        return None, None
    recent: deque[str] = deque(maxlen=50)

    async def show(control: "AgentControl") -> None:
        await show_panel(console, control.status, control.why, recent)

    return recent, show
