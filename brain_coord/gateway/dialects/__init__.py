"""One small table per API form: which events are real output, where the usage stands, how the end and an error look."""

from brain_coord.gateway.dialects.base import Dialect
from brain_coord.gateway.dialects.messages import COUNT_TOKENS, MESSAGES
from brain_coord.gateway.dialects.openai import CHAT, COMPLETIONS, EMBEDDINGS
from brain_coord.gateway.dialects.responses import RESPONSES
from brain_coord.gateway.dialects.seen import EventKind, Seen, Usage

DIALECTS: dict[str, Dialect] = {
    dialect.path: dialect for dialect in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES, COUNT_TOKENS)
}
"""By route."""

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "COUNT_TOKENS",
    "DIALECTS",
    "EMBEDDINGS",
    "MESSAGES",
    "RESPONSES",
    "Dialect",
    "EventKind",
    "Seen",
    "Usage",
]
