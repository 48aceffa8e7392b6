"""What a target's work costs, by the prices that its operator set."""

from dataclasses import dataclass
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
        total = 0.0
        output = None if path == EMBEDDINGS else (self.completion_usd_per_1m, completion_tokens)
        for part in ((self.prompt_usd_per_1m, prompt_tokens), output):
            if part is None:
                continue
            price, tokens = part
            if price is None:
                return None
            if price > 0:
                if tokens is None:
                    return None
                total += price * tokens
        return round(total / 1_000_000, 9)


UNKNOWN: Final = Prices()
