"""Blanking out known secrets wherever they appear: the last line of defence, not the first."""

from collections.abc import Callable, Iterable
from typing import Any, Final

_SHORTEST_SECRET: Final = 6
"""What is shorter is no secret, and blanking it out would spoil innocent words."""


def redactor(secrets: Iterable[str | None]) -> Callable[[Any], Any]:
    """A function that returns any JSON-like value without the secrets."""
    known = tuple(secret for secret in secrets if secret and len(secret) >= _SHORTEST_SECRET)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            for secret in known:
                value = value.replace(secret, "[secret]")
            return value
        if isinstance(value, dict):
            return {key: clean(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [clean(part) for part in value]
        return value

    return clean
