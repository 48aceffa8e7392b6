"""Where log lines go: standard error, a rotated file in the data folder, never with a secret in them."""

import logging
import logging.handlers
import os
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor
from typing_extensions import override

from brain_node.agent.log_line import plain_line
from brain_node.agent.redact import redactor

LOG_NAME: Final = "agent.log"
_FILE_BYTES: Final = 5 * 1024 * 1024
_FILES_KEPT: Final = 3


def log_path(data_dir: Path) -> Path:
    """The agent's own log file."""
    return data_dir / "logs" / LOG_NAME


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotated log that only its owner can read, and that a full disk does not stop."""

    _told = False

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that it cannot be written.

        Every record goes to standard error too; the library would add a traceback to each, with the record as it was
        before secrets were taken out.
        """
        if not self._told:
            self._told = True
            sys.stderr.write(f"{self.baseFilename} cannot be written: {sys.exc_info()[1]}\n")

    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


class _Recent(logging.Handler):
    """Keeps the newest lines for the panel."""

    def __init__(self, lines: "deque[str]") -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.extend(self.format(record).splitlines())


def _hide(secrets: Iterable[str | None]) -> Processor:
    clean = redactor(secrets)

    def process(_: Any, __: str, event: EventDict) -> EventDict:
        return {key: value if key.startswith("_") else clean(value) for key, value in event.items()}

    return process


def _drop_absent(_: Any, __: str, event: EventDict) -> EventDict:
    return {key: value for key, value in event.items() if value is not None}


def configure_logs(
    data_dir: Path,
    *,
    as_json: bool,
    level: str,
    secrets: Iterable[str | None],
    recent: "deque[str] | None" = None,
) -> None:
    """Send log lines to the log file, and to standard error or, where a live panel has the terminal, to `recent`."""
    secrets = tuple(secrets)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _drop_absent,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=True,
    )
    folder = log_path(data_dir).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_PrivateFile(log_path(data_dir), maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT)]
    handlers[0].setFormatter(_formatter(shared, secrets, as_json=True))
    shown = logging.StreamHandler(sys.stderr) if recent is None else _Recent(recent)
    shown.setFormatter(_formatter(shared, secrets, as_json=as_json))
    handlers.append(shown)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level.upper())
    # Libraries write whole frames and headers at debug level, the token among them.
    for name in ("websockets", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _formatter(shared: list[Processor], secrets: tuple[str | None, ...], *, as_json: bool) -> logging.Formatter:
    render: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        render += [structlog.processors.format_exc_info, _hide(secrets), structlog.processors.JSONRenderer()]
    else:
        # Plain and uncoloured: systemd's journal and files keep these lines as they are.
        render += [structlog.processors.format_exc_info, _hide(secrets), _plain]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=render)


def _plain(_: Any, __: str, event: EventDict) -> str:
    return plain_line(dict(event))
