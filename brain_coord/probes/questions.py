"""Canary questions: generated anew each time, with an answer that can be checked and that small models get right.

Each shows in a few turns how it is done and then asks for one more: models far smaller than the smallest that is asked go on
with a pattern of turns, where they lose themselves in instructions. They look like a customer's request: the members, their
order and the spacing of the body are those of the usual client library, the wording varies, and nothing in them repeats.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

import orjson

from brain_coord.measure.transcript import Transcript
from brain_coord.measure.words import NOUNS

Kind = Literal["echo", "sum", "fingerprint"]

THINKS: Final = re.compile(r"qwen3|deepseek-r1|gpt-oss|thinking")
"""Models that think before they answer need room for it."""

THINKING_TOKENS: Final = 1024

SUMS_FROM_B: Final = 1.2
"""Parameters, in billions, from which a model is asked for sums."""

_USAGE: Final = b',"stream_options":{"include_usage":true}}'
_NUMBER: Final = re.compile(r"\d+")
_WORDS: Final = re.compile(r"[a-z]+")
_SYSTEMS: Final = (None, None, "You are a helpful assistant.", "Answer briefly.", "Be concise.")

Turns = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """One request of ours.

    Attributes:
        kind: what is asked.
        body: the request's bytes, as the gateway would send them on for a customer.
        right: whether an answer is right; `None` where there is nothing to check but a peer's answer.
    """

    kind: Kind
    body: bytes
    right: Callable[[Transcript], bool] | None


def ask(kind: Kind, model: str, random: Random) -> Question:
    """A new question of a kind for a model."""
    thinks = THINKS.search(model) is not None
    if kind == "fingerprint":
        messages = [*_system(random), _message("user", _tale(random))]
        return Question(kind, body_of(model, messages, random.choice((40, 48, 64))), None)
    turns, last, right = _echo(random) if kind == "echo" else _sum(random)
    messages = _system(random)
    for asked, answered in turns:
        messages += [_message("user", asked), _message("assistant", answered)]
    messages.append(_message("user", last))
    tokens = THINKING_TOKENS if thinks else random.choice((16, 24, 32, 48))
    return Question(kind, body_of(model, messages, tokens), right)


def body_of(model: str, messages: list[dict[str, str]], max_tokens: int) -> bytes:
    """A streamed chat request at temperature 0."""
    body: dict[str, Any] = {
        "messages": messages,
        "model": model,
        "max_tokens": max_tokens,
        "stream": True,
        "temperature": 0,
    }
    return orjson.dumps(body)[:-1] + _USAGE


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _system(random: Random) -> list[dict[str, str]]:
    text = random.choice(_SYSTEMS)
    return [] if text is None else [_message("system", text)]


def _echo(random: Random) -> tuple[Turns, str, Callable[[Transcript], bool]]:
    """The words of a line again, or the first of them."""
    shots, width = random.randint(3, 5), random.choice((2, 3, 3, 4))
    words = random.sample(NOUNS, (shots + 1) * width)
    lines = [words[at : at + width] for at in range(0, len(words), width)]
    taken = random.choice((1, width))
    between = random.choice((" ", ", ", " / "))
    turns = [(between.join(line), between.join(line[:taken])) for line in lines[:-1]]
    wanted = lines[-1][:taken]
    return turns, between.join(lines[-1]), lambda said: _WORDS.findall(said.answer.lower())[:taken] == wanted


def _sum(random: Random) -> tuple[Turns, str, Callable[[Transcript], bool]]:
    """Two numbers below a hundred, added."""
    pairs = [(random.randint(11, 49), random.randint(2, 30)) for _ in range(random.randint(4, 6))]
    form = random.choice(("{} + {}", "{} + {} =", "{}+{}"))
    turns = [(form.format(*pair), str(sum(pair))) for pair in pairs[:-1]]
    last = pairs[-1]

    def right(said: Transcript) -> bool:
        found = [int(number) for number in _NUMBER.findall(said.answer)[:12]]
        if found[:2] == list(last):  # it writes the sum out
            found = found[2:]
        return found[:1] == [sum(last)] and set(found) <= {sum(last), *last}

    return turns, form.format(*last), right


def _tale(random: Random) -> str:
    """Something to go on from, for which there is no right answer but only this model's."""
    one, two, three, four = random.sample(NOUNS, 4)
    return random.choice(
        (
            f"Write two sentences about a {one}, a {two} and a {three}.",
            f"Describe in a few words how a {one} could be used together with a {two}.",
            f"Finish this thought: the {one} stood beside the {two} because",
            f"Explain the difference between a {one} and a {two} to a child.",
            f"Give a short name and a one-line description for a shop that sells a {one}, a {two} and a {four}.",
            f"List three things that a {one} and a {three} have in common.",
        )
    )
