"""Moments and lengths of time as they are typed."""

import re
from datetime import UTC, datetime
from typing import Final

import typer

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(text: str) -> float:
    """The length of a duration such as `90s`, `30m`, `12h`, `7d` or `2w`.

    Raises:
        typer.BadParameter: it is none.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw])", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"`{text}` is no duration: give a number and a unit, such as 90s, 30m, 12h, 7d or 2w")
    return int(match[1]) * _UNITS[match[2]]


def moment_of(text: str | None) -> float | None:
    """Seconds since 1970 of a time in ISO 8601, which is UTC where it does not say; `None` for none.

    Raises:
        typer.BadParameter: it is no time.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time such as 2025-06-01 or 2025-06-01T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
