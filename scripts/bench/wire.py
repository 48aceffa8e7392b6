"""What the stub engine and the load generator agree on: words to count, instructions in the prompt, requests as bytes."""

import json
from dataclasses import dataclass
from typing import Final

WORD: Final = b"z!q"
"""Stands once in every output event and nowhere else (no request id has a `!`), so that events are counted unparsed."""

EVENTS: Final = b"bench-events="
RATE: Final = b"bench-rate="
PAD: Final = b"bench-pad="
"""Instructions stand in the prompt: every router passes that on, whatever it does with unknown fields."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, the same for every system under test.

    Attributes:
        events: output events of the answer.
        rate: events per second of one stream; 0 sends all at once.
        stream: server-sent events, or one whole JSON answer.
        body_bytes: least size of the request's body.
        pad_bytes: extra text in every event.
    """

    events: int
    rate: int = 0
    stream: bool = True
    body_bytes: int = 0
    pad_bytes: int = 0

    def body(self, model: str) -> bytes:
        """The request's JSON body."""
        told = f"{EVENTS.decode()}{self.events} {RATE.decode()}{self.rate} {PAD.decode()}{self.pad_bytes} end"
        messages = [{"role": "user", "content": told}]
        body: dict[str, object] = {"model": model, "messages": messages, "max_tokens": max(1, self.events)}
        if self.stream:
            body["stream"] = True
        missing = self.body_bytes - len(json.dumps(body))
        if missing > 0:
            messages.append({"role": "user", "content": "x" * missing})
        return json.dumps(body).encode()

    def request(self, host: str, path: str, headers: dict[str, str], model: str) -> bytes:
        """The whole HTTP request, to be sent again and again on one connection."""
        body = self.body(model)
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {host}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def word_begun(data: bytes) -> bytes:
    """The beginning of the word that a piece of data may end with, to be put before the next piece."""
    return next((WORD[:size] for size in (2, 1) if data.endswith(WORD[:size])), b"")


def number_after(data: bytes, mark: bytes) -> int | None:
    """The digits that follow a mark, `None` where it does not stand."""
    at = data.find(mark)
    if at < 0:
        return None
    at += len(mark)
    end = at
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return int(data[at:end]) if end > at else None
