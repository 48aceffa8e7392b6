"""`brain-coord serve`: run the coordinator."""

import asyncio
import ipaddress
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from brain_coord.cli.store_access import CONFIG, DATABASE_URL, DataDir, fail
from brain_coord.coordinator import Coordinator
from brain_coord.observe.logs import configure_logs
from brain_coord.receipts.signer import SignerError
from brain_coord.routing.vocabulary import CommunityFirst
from brain_coord.server import PortTaken, serve
from brain_coord.settings import DEFAULT_PORT, Settings
from brain_coord.store.errors import StoreError
from brain_node.contract.catalog import CatalogError


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
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 or :: for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = DEFAULT_PORT,
    catalog: Annotated[Path | None, typer.Option(help="Model allowlist to use instead of the shipped one.")] = None,
    root_path: Annotated[str, typer.Option(help="Path prefix that a proxy in front keeps, e.g. /brain.")] = "",
    community_first: Annotated[
        CommunityFirst,
        typer.Option(
            envvar="BRAIN_COMMUNITY_FIRST", help="For whom a PUBLIC request in AUTO takes a Brain Node first."
        ),
    ] = CommunityFirst.FREE,
    open_join: Annotated[bool, typer.Option("--open-join", help="Let nodes join without a token.")] = False,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Proxy whose forwarded headers count; repeat for more.")
    ] = None,
    drain_timeout: Annotated[float, typer.Option(min=0, help="Seconds that streams get to end at a stop.")] = 30.0,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option()] = "info",
    json_logs: Annotated[
        bool | None, typer.Option("--json-logs/--plain-logs", help="Default: JSON off a terminal.")
    ] = None,
) -> None:
    """Run the coordinator until SIGTERM or Ctrl-C; a second signal ends it at once."""
    configure_logs(as_json=json_logs, level=log_level)
    settings = Settings(
        data_dir=data_dir,
        host=host,
        port=port,
        root_path=root_path.rstrip("/"),
        store_url=os.environ.get(DATABASE_URL) or None,
        catalog=catalog,
        community_first=community_first,
        token_required=not open_join,
        trusted_proxies=tuple(trusted_proxy or ()),
        drain_s=drain_timeout,
    )

    def ready(_: Coordinator, bound: int) -> None:
        base = url_of(host, bound, settings.root_path)
        sys.stdout.write(f"brain-coord listens on {base}\n  API      {base}/v1\n  network  {base}/network\n")
        sys.stdout.flush()

    sys.setswitchinterval(0.0005)  # the receipt writer's thread must not wait 5 ms for its turn while the loop is busy
    try:
        import uvloop

        uvloop.run(serve(settings, ready))
    except (StoreError, SignerError, CatalogError) as error:
        fail(error.code, error.message, error.next_step, CONFIG)
    except PortTaken as error:
        fail("port_taken", str(error), "Stop what listens there, or choose another --port", CONFIG)
    except (KeyboardInterrupt, asyncio.CancelledError):
        os._exit(130)
