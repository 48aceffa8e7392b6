"""Exact token counts with a model's own tokenizer, for models whose `tokenizer.json` the operator has on disk."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import structlog

log = structlog.get_logger("brain.measure")

FILE: Final = "tokenizer.json"

TEXT_BYTES: Final = 256 * 1024
"""A longer answer is bounded by its text, as for models without a tokenizer."""


@dataclass(slots=True)
class Tokenizers:
    """Tokenizers by model id, read once at the start; needs the optional package `tokenizers`."""

    _known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, places: Iterable[tuple[str, Path]]) -> "Tokenizers":
        """Those of the given `(model id, folder)` that are there and can be read; the others are bounded by their text."""
        found = [(model, folder / FILE) for model, folder in places if (folder / FILE).is_file()]
        if not found:
            return cls()
        if find_spec("tokenizers") is None:
            log.warning(
                "token counts are not checked exactly: install the extra `tokenizers`",
                models=[model for model, _ in found],
            )
            return cls()
        from tokenizers import Tokenizer

        known = {}
        for model, file in found:
            try:
                known[model] = Tokenizer.from_file(str(file))
            except Exception as error:
                log.warning("unreadable tokenizer", model=model, file=str(file), cause=str(error))
        return cls(known)

    def __contains__(self, model: object) -> bool:
        return model in self._known

    def count(self, model: str, text: str) -> int | None:
        """Tokens of a text, `None` for a model without a tokenizer or a text that is too long."""
        tokenizer = self._known.get(model)
        if tokenizer is None or len(text) > TEXT_BYTES:
            return None
        return len(tokenizer.encode(text, add_special_tokens=False).ids)
