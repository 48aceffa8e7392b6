"""Accounting over receipts: tokens, work and money, for each node and each key, by model. Pure.

Tokens are those that count for the ledger: never more than the text that was streamed can hold. Work is parameters x answer
tokens / 2^20, so that a large model's token weighs more than a small one's. Money is known only where a price was set.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

WORK_UNIT: Final = 1 << 20
"""Parameter-tokens in one unit of work."""

Side = Literal["node", "key"]


@dataclass(slots=True)
class Account:
    """What one node did, or one key used, with one model."""

    requests: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reported_tokens: int = 0
    """Answer tokens as engines reported them, before anything was taken off."""
    amount_usd: float | None = None
    """Sum over the requests that have a price; `None` when none has."""
    unpriced: int = 0
    """Requests without a price."""

    def add(self, body: Mapping[str, Any]) -> None:
        """One receipt's body."""
        tokens = body.get("tokens") or {}
        price = body.get("price")
        self.requests += 1
        self.completed += body.get("outcome") == "completed"
        self.prompt_tokens += _count(tokens.get("prompt_billed"))
        self.completion_tokens += _count(tokens.get("completion_billed"))
        self.reported_tokens += _count(tokens.get("completion_reported"))
        if price is None:
            self.unpriced += 1
        else:
            self.amount_usd = (self.amount_usd or 0.0) + float(price["amount_usd"])

    def work_units(self, params: float | None) -> float | None:
        """Work, unknown for a model whose parameters are."""
        return None if params is None else round(params * self.completion_tokens / WORK_UNIT, 3)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@dataclass(slots=True)
class Accounts:
    """All accounts of a span of receipts."""

    _accounts: dict[tuple[Side, str, str], Account] = field(default_factory=dict)

    def add(self, body: Mapping[str, Any]) -> None:
        """One receipt's body: it counts for the key that asked and the node that answered."""
        model = str(body.get("served_model") or body.get("model"))
        sides: tuple[tuple[Side, Any], ...] = (("node", body.get("node")), ("key", body.get("key")))
        for side, name in sides:
            if name is not None:
                self._accounts.setdefault((side, str(name), model), Account()).add(body)

    def rows(self, params_of: Callable[[str], float | None]) -> list[dict[str, Any]]:
        """One row for each node or key and model: nodes first, each by name.

        Args:
            params_of: how many parameters a model has, `None` when that is unknown.
        """
        return [
            {
                "side": side,
                "id": name,
                "model": model,
                "requests": account.requests,
                "completed": account.completed,
                "prompt_tokens": account.prompt_tokens,
                "completion_tokens": account.completion_tokens,
                "reported_tokens": account.reported_tokens,
                "work_units": account.work_units(params_of(model)),
                "amount_usd": None if account.amount_usd is None else round(account.amount_usd, 9),
                "unpriced_requests": account.unpriced,
            }
            for (side, name, model), account in sorted(
                self._accounts.items(), key=lambda item: (item[0][0] != "node", *item[0])
            )
        ]
