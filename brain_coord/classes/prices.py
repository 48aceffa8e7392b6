"""What a target's work costs, by the prices that its operator set."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

EMBEDDINGS: Final = "/v1/embeddings"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"


@dataclass(frozen=True, slots=True)
class Prices:
    """Configured prices in US dollars for a million tokens; `None` is unknown, and 0 is free."""

    prompt_usd_per_1m: float | None = None
    completion_usd_per_1m: float | None = None

    def cost_usd(self, path: str, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """What a request costs; unknown while a price or a count that it needs is. To count tokens costs nothing."""
        if path == COUNT_TOKENS:
            return None if self == UNKNOWN else 0.0
        prompt_usd, completion_usd = self.prompt_usd_per_1m, self.completion_usd_per_1m
        if path == EMBEDDINGS:
            completion_usd = 0.0
        if prompt_usd is None or completion_usd is None:
            return None
        if (prompt_usd and prompt_tokens is None) or (completion_usd and completion_tokens is None):
            return None
        total = prompt_usd * (prompt_tokens or 0) + completion_usd * (completion_tokens or 0)
        return round(total / 1_000_000, 9)


UNKNOWN: Final = Prices()


@lru_cache
def by_ask(ask_usd_per_1m: float | None) -> Prices:
    """Of a node by its ask, unknown without one. Only tokens of answers cost, as those are what the coordinator can count."""
    return UNKNOWN if ask_usd_per_1m is None else Prices(0.0, ask_usd_per_1m)
