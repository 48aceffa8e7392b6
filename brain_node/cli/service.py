"""`brain-node service`: run the agent as a systemd service, for this user or for the machine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from brain_node.cli.errors import fail, fail_with
from brain_node.cli.join import join
from brain_node.cli.unit import UNIT_NAME, UnitSpec, unit_text
from brain_node.exit_codes import TEMPORARY, UNAVAILABLE, USAGE
from brain_node.settings import FIELDS, FILE_NAME, Settings, SettingsError, resolve

SYSTEM_DIR: Final = Path("/etc/systemd/system")
STATE_DIR: Final = Path("/var/lib/brain-node")
"""The data folder of the machine's own service."""

_PARAMS: Final = {each.name: each.name for each in FIELDS if each.flag} | {
    "models": "model",
    "ask_usd_per_1m": "ask",
    "drain_timeout_s": "drain_timeout",
    "log_json": "as_json",
}
"""What `join` calls each setting."""

app = typer.Typer(no_args_is_help=True, help="Run the agent as a systemd service.")
_parser = typer.Typer(add_completion=False)
_parser.command()(join)

System = Annotated[bool, typer.Option("--system", help="For the machine, started at boot; needs root.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done.")]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def install(
    context: typer.Context,
    system: System = False,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it now.")] = True,
    dry_run: DryRun = False,
) -> None:
    """Install the service. What `brain-node join` takes, follows: `service install URL --token-file F --model auto`."""
    given = _join_params(context.args)
    flags = {name: given[param] for name, param in _PARAMS.items()}
    data_dir = given["data_dir"] or (STATE_DIR if system else None)  # whose file the service will read
    try:
        settings = resolve({**flags, "log_json": flags["log_json"] or None}, os.environ, data_dir)
    except SettingsError as error:
        fail_with(error)
    if settings.url is None:
        fail("no_url", "no coordinator is named", "brain-node service install https://coordinator.example", USAGE)
    if settings.sources["token"] == "environment BRAIN_NODE_TOKEN":  # noqa: S105 — a variable's name
        fail("token_in_environment", "a service does not see this shell's BRAIN_NODE_TOKEN", "use --token-file", USAGE)
    for each in FIELDS:
        if each.secret and settings.sources[each.name] == f"environment {each.variable}":
            place = settings.data_dir / FILE_NAME
            typer.echo(
                f"the service does not see this shell's {each.variable}: put `{each.name}` into {place}", err=True
            )
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    text = unit_text(_spec(settings, system=system))
    path = _folder(system=system) / UNIT_NAME
    if dry_run:
        typer.echo(f"# {path}\n{text}", nl=False)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        fail("not_written", f"cannot write {path}: {error.strerror}", "use sudo for --system", UNAVAILABLE)
    typer.echo(f"{path} written")
    _systemctl(system, "daemon-reload")
    _systemctl(system, "enable", *(["--now"] if start else []), UNIT_NAME)
    if not system:
        typer.echo("it runs while you are logged in; `loginctl enable-linger` keeps it running, also after a boot")
    typer.echo(f"see it with: {'sudo ' if system else ''}brain-node status{_where(system)}, {_journal(system)}")


@app.command()
def uninstall(system: System = False, dry_run: DryRun = False) -> None:
    """Stop and remove the service. The data folder, and with it the identity, stays."""
    path = _folder(system=system) / UNIT_NAME
    if not path.exists():
        fail("not_installed", f"there is no {path}", "use --system for the machine's own service", UNAVAILABLE)
    if dry_run:
        typer.echo(f"would stop and remove {path}")
        return
    _systemctl(system, "disable", "--now", UNIT_NAME)
    try:
        path.unlink()
    except OSError as error:
        fail("not_removed", f"cannot remove {path}: {error.strerror}", "use sudo for --system", UNAVAILABLE)
    _systemctl(system, "daemon-reload")
    typer.echo(f"{path} removed; identity and settings stay")


def _join_params(args: list[str]) -> dict[str, Any]:
    """What `join` would make of the words; leaves with its own usage error when it would not take them."""
    command = typer.main.get_command(_parser)
    with command.make_context("brain-node service install", list(args)) as parsed:
        return parsed.params


def _spec(settings: Settings, *, system: bool) -> UnitSpec:
    words = [sys.executable, "-m", "brain_node", "join", *_words(settings)]
    token_file = str(settings.token_file.absolute()) if settings.token_file is not None else None
    if token_file is not None and not system:
        words += ["--token-file", token_file]
    if settings.sources["data_dir"] != "default" and not (system and settings.data_dir == STATE_DIR):
        words += ["--data-dir", str(settings.data_dir)]
    return UnitSpec(tuple(words), system, settings.drain_timeout_s, token_file if system else None)


def _words(settings: Settings) -> Iterator[str]:
    """What was said here, on the command line or in this shell: a service sees neither its variables nor its folder."""
    for each in FIELDS:
        source = settings.sources[each.name].partition(" ")[0]
        if each.flag is None or each.name == "token_file" or source not in ("flag", "environment"):
            continue
        value = getattr(settings, each.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, bool):
                yield from (each.flag,) if one else ()
                continue
            yield from () if each.name == "url" else (each.flag,)
            yield (
                str(one.absolute()) if isinstance(one, Path) else "=".join(one) if isinstance(one, tuple) else str(one)
            )


def _folder(*, system: bool) -> Path:
    if system:
        return SYSTEM_DIR
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user"


def _systemctl(system: bool, *words: str) -> None:
    program = shutil.which("systemctl")
    command = ["systemctl", *([] if system else ["--user"]), *words]
    if program is None:
        fail("no_systemd", "this machine has no systemctl", f"run by hand: {' '.join(command)}", UNAVAILABLE)
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        fail("systemctl", f"`{' '.join(command)}` failed: {lines[0]}", "see `journalctl -xe`", TEMPORARY)


def _where(system: bool) -> str:
    return f" --data-dir {STATE_DIR}" if system else ""


def _journal(system: bool) -> str:
    return "journalctl -u brain-node -f" if system else "journalctl --user -u brain-node -f"
