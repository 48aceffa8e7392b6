"""How fast engines make tokens, by their own counters; for the operator's eyes only, a coordinator measures for itself."""

import re
from typing import Final

import aiohttp

from brain_node.engine.probe import whole_answer

_GENERATED: Final = re.compile(
    rb"^vllm:generation_tokens_total(?:\{[^}]*\})? (\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=\s|$)", re.MULTILINE
)
_TIMEOUT: Final = aiohttp.ClientTimeout(total=2.0)


class TokenRate:
    """Tokens a second between the last two readings of a counter."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self.tokens_s: float | None = None
        """`None` until two readings were made."""

    def observe(self, total: float | None, now: float) -> None:
        """Take a reading at `now` (monotonic seconds); a counter that began anew starts over."""
        last, self._last = self._last, None if total is None else (total, now)
        if last is None or total is None or total < last[0] or now <= last[1]:
            self.tokens_s = None
            return
        self.tokens_s = (total - last[0]) / (now - last[1])


async def generated_tokens(http: aiohttp.ClientSession, base_url: str) -> float | None:
    """All tokens an engine has made since its start, or `None` when it does not say."""
    try:
        async with http.get(base_url + "/metrics", timeout=_TIMEOUT, allow_redirects=False) as response:
            text = await whole_answer(response)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    counts = [float(match.group(1)) for match in _GENERATED.finditer(text)]
    return sum(counts) if counts else None
