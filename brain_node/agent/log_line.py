"""One log record as a line for people: `time level event key=value …`, a traceback below if there is one."""

from typing import Any


def plain_line(record: dict[str, Any]) -> str:
    """The line, without its newline and without colours: journals and files keep it as it is.

    Values from elsewhere are shown as literals where they hold anything that a terminal would obey.
    """
    rest = dict(record)
    exception = rest.pop("exception", None)
    head = f"{rest.pop('timestamp', '')} {rest.pop('level', 'info'):<7} {rest.pop('event', '')}"
    pairs = " ".join(f"{key}={_shown(value)}" for key, value in rest.items())
    return "\n".join(part for part in (f"{head} {pairs}".rstrip(), exception) if part)


def _shown(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return repr(text) if not text or not text.isprintable() or " " in text else text
