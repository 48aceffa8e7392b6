"""How stages are spread over tabs as tabs come and go: who takes one over, who lets one go. Pure."""

from collections.abc import Callable, Mapping, Sequence

Held = Mapping[str, frozenset[str]]
"""Stages by tab, those that it is loading included."""


def next_move(held: Held, takers: Callable[[str], Sequence[str]]) -> tuple[str, str] | None:
    """A stage, and the tab that should take it so that the work is spread more evenly; `None` when it is.

    It goes from a tab that holds several to one that holds at least two fewer, so that moving it back is never better.

    Args:
        held: who holds what.
        takers: the tabs that could load a stage now, best first.
    """
    for tab in sorted(held, key=lambda each: (-len(held[each]), each)):
        if len(held[tab]) < 2:
            break
        for stage in sorted(held[tab]):
            fit = [each for each in takers(stage) if len(held.get(each, ())) <= len(held[tab]) - 2]
            if fit:
                return stage, min(fit, key=lambda each: len(held.get(each, ())))
    return None


def surplus(held: Held, replicas: Mapping[str, int]) -> list[tuple[str, str]]:
    """Tabs and stages to let go: where more tabs hold a stage than are wanted, the fullest one that holds others too."""
    left = {tab: set(stages) for tab, stages in held.items()}
    gone: list[tuple[str, str]] = []
    for stage, wanted in sorted(replicas.items()):
        holders = [tab for tab, stages in left.items() if stage in stages]
        while len(holders) > wanted:
            tab = min(holders, key=lambda each: (-len(left[each]), each))
            if len(left[tab]) < 2:
                break  # a tab that holds nothing else may as well keep it
            left[tab].discard(stage)
            holders.remove(tab)
            gone.append((tab, stage))
    return gone
