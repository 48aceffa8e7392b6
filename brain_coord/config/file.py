"""The file itself: where it lies, how it is read, and the one value that commands beside `serve` need of it."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from brain_coord.config.faults import ConfigError, Fault
from brain_node.contract.secret_file import read_private

FILE_NAME: Final = "config.toml"
DATABASE_URL: Final = "BRAIN_COORD_DATABASE_URL"
"""A URL may hold a password, so it is never a flag and never in the file itself."""

CLUSTER_URL: Final = "BRAIN_COORD_CLUSTER_URL"
CLUSTER_SECRET: Final = "BRAIN_COORD_CLUSTER_SECRET"  # noqa: S105 — a variable's name
"""The same holds for these."""

DATABASE_URL_FILE: Final = "BRAIN_COORD_STORE_URL_FILE"
"""`[store] url_file` in the environment, as containers are told of it."""


def database_url(data_dir: Path, file: Path | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """The database that `serve` would use.

    Other faults of the file, such as a key of an upstream that only the service has in its environment, are no concern
    of whoever asks only this.

    Raises:
        ConfigError: the file cannot be read.
    """
    variables = os.environ if environ is None else environ
    url = variables.get(DATABASE_URL)
    path = file or data_dir / FILE_NAME
    table = (read_table(path, needed=file is not None) or {}).get("store")
    name = variables.get(DATABASE_URL_FILE) or (table.get("url_file") if isinstance(table, dict) else None)
    if url or not isinstance(name, str):
        return url or None
    try:
        return read_private(path.parent / Path(name).expanduser())[0].strip() or None
    except (OSError, UnicodeDecodeError):
        source = f"environment {DATABASE_URL_FILE}" if variables.get(DATABASE_URL_FILE) else f"file {path}"
        raise ConfigError([Fault(source, "[store]", "url_file", f"{name} cannot be read")]) from None


def read_table(path: Path, *, needed: bool) -> dict[str, Any] | None:
    """The content of the file; `None` when it is not there and need not be.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):  # a data folder that is a file is told by whoever opens it
        if not needed:
            return None
        raise ConfigError([Fault(f"file {path}", None, None, "does not exist")]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        if isinstance(error, PermissionError):
            reason = f"{reason} (run this as the user that the coordinator runs as)"
        raise ConfigError([Fault(f"file {path}", None, None, f"cannot be read: {reason}")]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([Fault(f"file {path}", None, None, f"is not TOML: {error}")]) from None
