"""One small table per API form: where the model stands, which events are real output, how the end and an error look."""

from brain_coord.gateway.dialects.base import Dialect, EventKind, Seen
from brain_coord.gateway.dialects.openai import CHAT, COMPLETIONS, EMBEDDINGS

DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (CHAT, COMPLETIONS, EMBEDDINGS)}
"""By route."""

__all__ = ["CHAT", "COMPLETIONS", "DIALECTS", "EMBEDDINGS", "Dialect", "EventKind", "Seen"]
