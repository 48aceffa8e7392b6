"""Structured logs on standard error: one line a record, JSON when nobody watches a terminal. Never prompt text."""

import logging
import sys
from contextvars import ContextVar
from typing import Final

import structlog
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

# Set by each request, which is a task with a context of its own. By their names `merge_contextvars` finds them; its own
# `bind_contextvars` looks for them anew at every call.
REQUEST_ID: Final = ContextVar[str](STRUCTLOG_KEY_PREFIX + "request_id")
DECISION_ID: Final = ContextVar[str](STRUCTLOG_KEY_PREFIX + "decision")


def configure_logs(*, as_json: bool | None, level: str) -> None:
    """Set structlog up.

    Args:
        as_json: `None` decides by whether standard error is a terminal.
        level: the least level that is written.
    """
    json_lines = not sys.stderr.isatty() if as_json is None else as_json
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    numeric = logging.getLevelNamesMapping()[level.upper()]
    described: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,  # request and decision ids, whoever writes the line
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*described, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries speak through logging; only what is wrong is worth a line, in the same form.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *described],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
