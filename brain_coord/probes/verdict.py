"""Who of two or three nodes that were asked the same is the one that is wrong. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from brain_coord.measure.similarity import agree


@dataclass(frozen=True, slots=True)
class Given:
    """One node's answer to the question."""

    node_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison came to: who agreed, who was the one that did not. Both empty: undecided, nobody pays."""

    matched: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether it counts for or against anybody."""
        return bool(self.matched)


def judge(given: Sequence[Given], same: Callable[[str, str], bool] = agree) -> Verdict:
    """The verdict over two or three answers.

    Two that agree are both right. Of two that do not, nothing is known until a third settles it: who agrees with the third is
    right, who agrees with nobody is wrong. Three that all differ say nothing about anybody.
    """
    friends: dict[str, int] = {each.node_id: 0 for each in given}
    for one, other in combinations(given, 2):
        if same(one.text, other.text):
            friends[one.node_id] += 1
            friends[other.node_id] += 1
    if not any(friends.values()):
        return Verdict()
    return Verdict(
        tuple(node_id for node_id, count in friends.items() if count),
        tuple(node_id for node_id, count in friends.items() if not count),
    )
