"""`brain-coord serve`: run the coordinator."""

import asyncio
import ipaddress
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import structlog
import typer

from brain_coord.cli.store_access import CONFIG, DataDir, exit_code_of, fail
from brain_coord.config.faults import ConfigError
from brain_coord.config.load import Loaded, load
from brain_coord.coordinator import Coordinator
from brain_coord.observe.logs import configure_logs
from brain_coord.receipts.signer import SignerError
from brain_coord.routing.vocabulary import CommunityFirst
from brain_coord.server import CannotListen, serve
from brain_coord.store.errors import StoreError
from brain_node.contract.catalog import CatalogError

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="BRAIN_COORD_CONFIG",
        show_default="config.toml in the data folder, if it is there",
        metavar="FILE",
        help="Configuration file (TOML).",
    ),
]

FLAGS: Final = {
    "host": ("server", "host"),
    "port": ("server", "port"),
    "root_path": ("server", "root_path"),
    "tls_cert": ("server", "tls_cert"),
    "tls_key": ("server", "tls_key"),
    "trusted_proxy": ("server", "trusted_proxies"),
    "cors_origin": ("server", "cors_origins"),
    "drain_timeout": ("server", "drain_s"),
    "catalog": ("routing", "catalog"),
    "community_first": ("routing", "community_first"),
    "log_level": ("log", "level"),
    "json_logs": ("log", "json"),
}
"""Where each flag would stand in the file."""


def url_of(host: str, port: int, root_path: str = "", scheme: str = "http") -> str:
    """A URL that this machine can open for a bind address; IPv6 literals in brackets."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 — shown, not bound
    try:
        if ipaddress.ip_address(shown).version == 6:
            shown = f"[{shown}]"
    except ValueError:
        pass
    return f"{scheme}://{shown}:{port}{root_path}"


def serve_command(
    data_dir: DataDir,
    config: ConfigFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 or :: for every network.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="Port; 0 takes a free one. Default: 8470.")] = None,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Model allowlist to use instead of the shipped one.")
    ] = None,
    root_path: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Path prefix that a proxy in front keeps, e.g. /brain.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM); with --tls-key it serves https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the certificate (PEM).")] = None,
    community_first: Annotated[
        CommunityFirst | None,
        typer.Option(
            help="For whom a PUBLIC request in AUTO takes a Brain Node first; also BRAIN_COMMUNITY_FIRST. Default: free."
        ),
    ] = None,
    open_join: Annotated[bool, typer.Option("--open-join", help="Let nodes join without a token.")] = False,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="Proxy whose forwarded headers count; repeat for more.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may call the API; repeat for more.")
    ] = None,
    drain_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Seconds that streams get to end at a stop. Default: 30.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Default: info.")
    ] = None,
    json_logs: Annotated[
        bool | None, typer.Option("--json-logs/--plain-logs", help="Default: JSON off a terminal.")
    ] = None,
) -> None:
    """Run the coordinator until SIGTERM or Ctrl-C. A second signal ends it at once, SIGHUP reloads the configuration."""
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "catalog": _absolute(catalog),
        "root_path": root_path,
        "tls_cert": _absolute(tls_cert),
        "tls_key": _absolute(tls_key),
        "community_first": community_first,
        "trusted_proxy": trusted_proxy or None,
        "cors_origin": cors_origin or None,
        "drain_timeout": drain_timeout,
        "log_level": log_level,
        "json_logs": json_logs,
    }
    flags: dict[tuple[str | int, ...], tuple[str, Any]] = {
        FLAGS[name]: (f"flag --{name.replace('_', '-')}", value) for name, value in given.items() if value is not None
    }
    if open_join:
        flags["join", "token_required"] = ("flag --open-join", False)

    def read() -> Loaded:
        return load(data_dir, _absolute(config), flags=flags)

    try:
        loaded = read()
    except ConfigError as error:
        fail(error.code, error.message, error.next_step, CONFIG)
    settings = loaded.settings
    configure_logs(as_json=settings.log_json, level=settings.log_level)
    log = structlog.get_logger("brain.config")
    for warning in loaded.warnings:
        log.warning("configuration", warning=warning)

    def ready(_: Coordinator, bound: int) -> None:
        scheme = "http" if settings.tls_cert is None else "https"
        base = url_of(settings.host, bound, settings.root_path, scheme)
        sys.stdout.write(f"brain-coord listens on {base}\n  API      {base}/v1\n  network  {base}/network\n")
        sys.stdout.flush()

    sys.setswitchinterval(0.0005)  # the receipt writer's thread must not wait 5 ms for its turn while the loop is busy
    try:
        import uvloop

        uvloop.run(serve(settings, ready, read))
    except (StoreError, SignerError, CatalogError) as error:
        fail(error.code, error.message, error.next_step, exit_code_of(error))
    except CannotListen as error:
        fail("cannot_listen", str(error), "Stop what listens there, or choose another --host or --port", CONFIG)
    except (KeyboardInterrupt, asyncio.CancelledError):
        os._exit(130)


def _absolute(path: Path | None) -> Path | None:
    """A path of the command line is taken from the working directory."""
    return None if path is None else path.expanduser().absolute()
