"""The parts that every routing sentence is made of: shortened ids, numbers, weighted sums, lists of rejections."""

from collections.abc import Iterable, Mapping, Sequence

from brain_coord.routing.weights import SCORE_DECIMALS

_PREFIX = "N-"
_SHORT_DIGITS = 4
_NUMBER = f"%.{SCORE_DECIMALS}f"


def shorten_ids(node_ids: Iterable[str]) -> dict[str, str]:
    """Each id as one sentence may call it: the first 4 digits and `…`, or as many as keep these ids distinct."""
    ids = dict.fromkeys(node_ids)
    if len(ids) == 1:
        (only,) = ids
        start = _start(only, _SHORT_DIGITS)
        return {only: only if start == only else f"{start}…"}
    longest = max(map(len, ids), default=0)
    digits = _SHORT_DIGITS
    while digits < longest and len({_start(each, digits) for each in ids}) < len(ids):
        digits += 1
    return {each: each if _start(each, digits) == each else f"{_start(each, digits)}…" for each in ids}


def _start(node_id: str, digits: int) -> str:
    return node_id[: digits + (len(_PREFIX) if node_id.startswith(_PREFIX) else 0)]


def number(value: float) -> str:
    """A score or a term as it is shown: up to 6 decimals, at least one, no trailing zeros."""
    text = (_NUMBER % value).rstrip("0")
    return f"{text}0" if text[-1] == "." else text


def weighted_sum(total: float, terms: Iterable[tuple[float, str, float]]) -> str:
    """`score 0.83 = 0.30·capability 1.0 + …` from (weight, name, value) triples."""
    return f"score {number(total)} = " + " + ".join(
        f"{weight:.2f}·{name} {number(value)}" for weight, name, value in terms
    )


def no_capacity(
    wanted: str, named: Sequence[tuple[str, Iterable[str]]], first_reasons_of_rest: Mapping[str, int], *, nobody: str
) -> str:
    """Why nobody can serve: `0 of 3 nodes can serve M right now (N-3A4F…: offline; …)`.

    Args:
        wanted: the model asked for.
        named: id and reasons of the first candidates, by ascending id.
        first_reasons_of_rest: how many further candidates have each as their first reason.
        nobody: what stands in the brackets when there was no candidate.
    """
    short = shorten_ids(node_id for node_id, _ in named)
    parts = [f"{short[node_id]}: {', '.join(reasons)}" for node_id, reasons in named]
    rest = sum(first_reasons_of_rest.values())
    if rest:
        counted = ", ".join(f"{count} × {reason}" for reason, count in most_frequent(first_reasons_of_rest))
        parts.append(f"and {rest} more: {counted}")
    return f"0 of {len(named) + rest} nodes can serve {wanted} right now ({'; '.join(parts) or nobody})"


def most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counted words, the most frequent first, then by alphabet."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
