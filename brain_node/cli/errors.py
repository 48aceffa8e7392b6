"""How a command ends when something is wrong: a code, one line of cause, the next step; no traceback."""

import sys
from typing import NoReturn

import typer

from brain_node.exit_codes import CONFIG, TEMPORARY, UNAVAILABLE


def fail(code: str, message: str, next_step: str = "", exit_code: int = CONFIG) -> NoReturn:
    """Say what is wrong on standard error, and leave."""
    lines = [f"error [{code}]: {message}"] + ([f"  next: {next_step}"] if next_step else [])
    sys.stderr.write("\n".join(lines) + "\n")
    raise typer.Exit(exit_code)


def fail_with(error: Exception) -> NoReturn:
    """Leave with what an error says: every error that is meant for people has `code`, `message` and `next_step`.

    Raises:
        Exception: the error itself, when it is not meant for people.
    """
    fault = getattr(error, "fault", None)
    if fault is not None:
        fail(fault.code, fault.message, fault.next_step, fault.exit_code or TEMPORARY)
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if isinstance(code, str) and isinstance(message, str):
        fail(code, message, getattr(error, "next_step", ""), getattr(error, "exit_code", CONFIG))
    if type(error).__name__ == "IdentityError":  # not imported: `status` must not pay for cryptography
        fail("identity", str(error), "run it as the user that the agent runs as; a damaged file has to be restored")
    if isinstance(error, OSError):
        step = "run it as the user that the agent runs as, or with sudo" if isinstance(error, PermissionError) else ""
        fail("system", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), step, UNAVAILABLE)
    raise error
