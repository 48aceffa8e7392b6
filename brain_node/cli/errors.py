"""How a command ends when something is wrong: a code, one line of cause, the next step; no traceback."""

import sys
from typing import NoReturn

import typer

from brain_node.contract.catalog import CatalogError, UnknownModelError
from brain_node.contract.identity import IdentityError
from brain_node.exit_codes import CONFIG, TEMPORARY, UNAVAILABLE, USAGE
from brain_node.link.faults import LinkError
from brain_node.link.url import UrlError
from brain_node.settings import SettingsError


def fail(code: str, message: str, next_step: str = "", exit_code: int = CONFIG) -> NoReturn:
    """Say what is wrong on standard error, and leave."""
    lines = [f"error [{code}]: {message}"] + ([f"  next: {next_step}"] if next_step else [])
    sys.stderr.write("\n".join(lines) + "\n")
    raise typer.Exit(exit_code)


def fail_with(error: Exception) -> NoReturn:
    """Leave with what one of the known errors says.

    Raises:
        Exception: the error itself, when it is none of the known ones.
    """
    if isinstance(error, SettingsError):
        fail(error.code, error.message, error.next_step, error.exit_code)
    if isinstance(error, UrlError):
        fail("bad_url", str(error), "brain-node join https://coordinator.example", USAGE)
    if isinstance(error, LinkError):
        fault = error.fault
        fail(fault.code, fault.message, fault.next_step, fault.exit_code or TEMPORARY)
    if isinstance(error, CatalogError | UnknownModelError):
        fail(error.code, error.message, error.next_step)
    if isinstance(error, IdentityError):
        fail("identity", str(error))
    if isinstance(error, OSError):
        fail("data_dir", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), exit_code=UNAVAILABLE)
    raise error
