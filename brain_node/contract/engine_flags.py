"""The closed set of engine flags that a catalog entry may carry.

A catalog names what an engine is started with, so an open set would let a file reach anything the engine can do: run
code that ships with the weights, listen on a public address, print a key. Only flags listed here pass, each with a
checked value. What the node decides itself (address, port, cards, memory, served name) is not in the set.
"""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

CheckValue = Callable[[str], str | None]
"""Takes a flag's value and returns what is wrong with it, or `None`."""


def _one_of(*choices: str) -> CheckValue:
    def check(value: str) -> str | None:
        return None if value in choices else f"must be one of {', '.join(choices)}"

    return check


def _positive(value: str) -> str | None:
    return None if re.fullmatch(r"[1-9][0-9]{0,8}", value) else "must be a whole number above 0"


def _parser_name(value: str) -> str | None:
    return None if re.fullmatch(r"[a-z0-9_]{1,40}", value) else "must be a parser name (a-z, 0-9, _)"


def _modality_limits(value: str) -> str | None:
    wrong = 'must be JSON that limits each modality, such as {"image": 0}'
    try:
        limits = json.loads(value)
    except ValueError:
        return wrong
    if not isinstance(limits, dict) or not limits:
        return wrong
    whole = all(type(count) is int and count >= 0 for count in limits.values())
    return None if whole and set(limits) <= {"image", "video", "audio"} else wrong


FLAGS: Final[dict[str, CheckValue | None]] = {
    "--quantization": _one_of("awq", "awq_marlin", "gptq", "gptq_marlin", "fp8", "compressed-tensors", "mxfp4"),
    "--dtype": _one_of("auto", "half", "float16", "bfloat16", "float32"),
    "--kv-cache-dtype": _one_of("auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16"),
    "--load-format": _one_of("auto", "safetensors", "mistral"),
    "--config-format": _one_of("auto", "hf", "mistral"),
    "--tokenizer-mode": _one_of("auto", "hf", "slow", "mistral"),
    "--generation-config": _one_of("auto", "vllm"),
    "--max-model-len": _positive,
    "--max-num-seqs": _positive,
    "--max-num-batched-tokens": _positive,
    "--block-size": _positive,
    "--reasoning-parser": _parser_name,
    "--tool-call-parser": _parser_name,
    "--limit-mm-per-prompt": _modality_limits,
    "--enable-auto-tool-choice": None,
    "--enforce-eager": None,
    "--enable-prefix-caching": None,
    "--no-enable-prefix-caching": None,
    "--enable-chunked-prefill": None,
}
"""Every flag allowed, with the check of its value; `None` for a flag that takes no value."""

_NODE_DECIDES: Final = frozenset(
    {
        "--model",
        "--served-model-name",
        "--host",
        "--port",
        "--uds",
        "--tensor-parallel-size",
        "--gpu-memory-utilization",
        "--kv-cache-memory-bytes",
        "--revision",
        "--download-dir",
    }
)


class FlagError(ValueError):
    """An engine flag outside the closed set, or one with a wrong value; the text is one line for people."""


def checked_args(args: Sequence[str]) -> tuple[str, ...]:
    """Check engine flags against the closed set and return them as separate words.

    Args:
        args: Words as they stand in a catalog; `--flag value` may also be written `--flag=value`.

    Returns:
        The same flags in order, each value its own word.

    Raises:
        FlagError: A word is no flag of the set, a value is missing or wrong, or a flag comes twice.
    """
    words = [part for arg in args for part in _split(arg)]
    result: list[str] = []
    seen: set[str] = set()
    position = 0
    while position < len(words):
        flag = words[position]
        _refuse_unknown(flag)
        if flag in seen:
            raise FlagError(f"{flag} is given twice")
        seen.add(flag)
        result.append(flag)
        position += 1
        check = FLAGS[flag]
        if check is None:
            continue
        if position == len(words) or words[position].startswith("--"):
            raise FlagError(f"{flag} needs a value")
        wrong = check(words[position])
        if wrong:
            raise FlagError(f"{flag} {wrong}, not {words[position]!r}")
        result.append(words[position])
        position += 1
    return tuple(result)


def flag_value(args: Sequence[str], flag: str) -> str | None:
    """Return the value of `flag` in checked `args`, or `None` when it is not there."""
    for word, following in itertools.pairwise(args):
        if word == flag:
            return following
    return None


def without_flags(args: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Return checked `args` without `flags` and their values."""
    kept: list[str] = []
    skip_value = False
    for word in args:
        if word in FLAGS:
            skip_value = word in flags and FLAGS[word] is not None
            if word not in flags:
                kept.append(word)
        elif not skip_value:
            kept.append(word)
    return tuple(kept)


def _split(arg: str) -> tuple[str, ...]:
    if arg.startswith("--") and "=" in arg:
        flag, value = arg.split("=", 1)
        return flag, value
    return (arg,)


def _refuse_unknown(flag: str) -> None:
    if flag in FLAGS:
        return
    if flag.replace("_", "-") == "--trust-remote-code":
        raise FlagError("--trust-remote-code is never allowed: a node does not run code that ships with weights")
    if flag in _NODE_DECIDES:
        raise FlagError(f"{flag} is decided by the node, not by the catalog")
    raise FlagError(f"unknown engine flag {flag!r}; allowed: {', '.join(FLAGS)}")
