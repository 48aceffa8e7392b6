"""`brain-node service`: run the agent as a systemd service, for this user or for the machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from brain_node.cli.errors import fail, fail_with
from brain_node.cli.join import join
from brain_node.cli.unit import UNIT_NAME, UnitSpec, unit_text
from brain_node.exit_codes import TEMPORARY, UNAVAILABLE, USAGE
from brain_node.settings import Settings, SettingsError, resolve

SYSTEM_DIR: Final = Path("/etc/systemd/system")

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
    flags = _join_flags(context.args)
    try:
        settings = resolve({name: flags[name] for name in ("url", "token_file", "drain_timeout_s")}, os.environ, None)
    except SettingsError as error:
        fail_with(error)
    if settings.url is None:
        fail("no_url", "no coordinator is named", "brain-node service install https://coordinator.example", USAGE)
    if settings.sources["token"].startswith("environment"):
        fail("token_in_environment", "a service does not see this shell's BRAIN_NODE_TOKEN", "use --token-file", USAGE)
    text = unit_text(_spec(context.args, settings, system=system))
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
    """Stop and remove the service; the data folder, and with it the identity, stays."""
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


def _join_flags(args: list[str]) -> dict[str, object]:
    """What `join` would make of the words; leaves with its own usage error when it would not take them."""
    command = typer.main.get_command(_parser)
    with command.make_context("brain-node service install", list(args)) as parsed:
        values = parsed.params
    return {
        "url": values["url"],
        "token_file": values["token_file"],
        "drain_timeout_s": values["drain_timeout"],
    }


def _spec(args: list[str], settings: Settings, *, system: bool) -> UnitSpec:
    words = [sys.executable, "-m", "brain_node", "join", *args]
    token_file: str | None = None
    if settings.token_file is not None:
        absolute = str(settings.token_file.absolute())
        if system:
            token_file, words = absolute, _without_token_file(words)
        else:
            words = [*_without_token_file(words), "--token-file", absolute]
    return UnitSpec(tuple(words), system, settings.drain_timeout_s, token_file)


def _without_token_file(words: list[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if not skip and word != "--token-file" and not word.startswith("--token-file="):
            kept.append(word)
        skip = word == "--token-file"
    return kept


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
    return " --data-dir /var/lib/brain-node" if system else ""


def _journal(system: bool) -> str:
    return "journalctl -u brain-node -f" if system else "journalctl --user -u brain-node -f"
