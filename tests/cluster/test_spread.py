"""How nodes spread again over coordinators, of which each only decides for itself. Time is an argument."""

import random
from collections import Counter

import pytest

from brain_coord.cluster.spread import (
    AGAIN_S,
    ENOUGH,
    HANDFUL,
    LESS,
    LINKED_S,
    MORE,
    ROUND_S,
    SETTLED_S,
    Linked,
    Spread,
)

NOW = 10_000.0


def here(count: int, since: float = 0.0, idle: bool = True) -> list[Linked]:
    return [Linked(f"N-{number}", since, idle) for number in range(count)]


def settled(counts: dict[str, int]) -> Spread:
    """Of a coordinator `a` that has seen these counts for long enough."""
    spread = Spread()
    assert spread.due("a", counts, here(counts["a"]), NOW - SETTLED_S) == [], "not at once"
    return spread


@pytest.mark.parametrize(
    ("counts", "asked"),
    [
        ({"a": 15, "b": 15, "c": 0}, 1),
        ({"a": 14, "b": 14, "c": 0}, 0),  # not a handful
        ({"a": 120, "b": 90, "c": 90}, 0),  # not a fifth
        ({"a": 121, "b": 90, "c": 89}, 1),
        ({"a": 5000, "b": 5000, "c": 0}, 56),
        ({**dict.fromkeys("abcdefg", 80), "h": 0}, 1),  # little more for each, and one has none
        ({**dict.fromkeys("abcdefg", 80), "h": 50}, 0),
        ({"a": 0, "b": 30}, 0),
        ({"a": 30}, 0),
        ({"a": 0, "b": 0}, 0),
    ],
)
def test_who_holds_clearly_more_than_its_share_asks_a_few_at_a_time(counts, asked):
    assert len(settled(counts).due("a", counts, here(counts["a"]), NOW)) == asked


def test_once_begun_it_goes_on_down_to_its_share_and_no_further():
    spread = settled({"a": 16, "b": 14, "c": 0})
    left = {node.node_id: node for node in here(16)}
    now, elsewhere = NOW, 14
    for _ in range(50):
        for node_id in spread.due("a", {"a": len(left), "b": 14, "c": elsewhere - 14}, left.values(), now):
            del left[node_id]
            elsewhere += 1
        now += ROUND_S
    assert len(left) == 10


def test_only_nodes_that_rest_and_have_been_linked_for_a_while_are_asked_the_longest_first():
    counts = {"a": 40, "b": 0}
    nodes = [
        Linked("busy", 0.0, False),
        Linked("young", NOW - LINKED_S + 1, True),
        Linked("later", 20.0, True),
        Linked("first", 10.0, True),
    ]
    spread = settled(counts)
    assert spread.due("a", counts, nodes, NOW) == ["first"]
    assert spread.due("a", counts, nodes, NOW + ROUND_S) == ["later"]


def test_nobody_is_asked_while_coordinators_come_and_go():
    counts = {"a": 30, "b": 0}
    spread = settled(counts)
    changed = {"a": 30, "b": 0, "c": 0}
    assert spread.due("a", changed, here(30), NOW) == []
    assert spread.due("a", changed, here(30), NOW + SETTLED_S - 1) == []
    assert spread.due("a", changed, here(30), NOW + SETTLED_S) != []


def test_a_node_is_asked_once_in_a_while():
    counts = {"a": 20, "b": 0}
    spread = settled(counts)
    node = [Linked("only", 0.0, True)]
    assert spread.due("a", counts, node, NOW) == ["only"]
    assert spread.due("a", counts, node, NOW + AGAIN_S - 1) == []
    assert spread.due("a", counts, node, NOW + AGAIN_S) == ["only"]


def test_a_balancer_that_keeps_each_address_with_one_coordinator_ends_it_for_a_while():
    counts = {"a": 300, "b": 0}
    spread, asked, now = settled(counts), [], NOW
    while now < NOW + AGAIN_S - ROUND_S:
        asked += spread.due("a", counts, here(300), now)  # every one of them comes back at once
        now += ROUND_S
    assert ENOUGH <= len(asked) <= 3 * ENOUGH
    assert spread.in_vain


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("names", ["ab", "abc", "abcdefgh"])
def test_after_a_rolling_restart_nodes_spread_evenly_and_then_rest(seed, names):
    """Links are led by chance, some nodes are always at work; the last coordinator begins with none."""
    rng = random.Random(seed)
    size = rng.choice([20, 60, 400])
    at = {f"N-{number}": (rng.choice(names[:-1]), 0.0) for number in range(size)}
    spreads = {name: Spread() for name in names}
    moves, now = [], 100.0
    while now < 100.0 + 6 * 3600:
        counts = dict.fromkeys(names, 0) | Counter(name for name, _ in at.values())
        for name in names:
            linked = [
                Linked(node_id, since, rng.random() < 0.5) for node_id, (held, since) in at.items() if held == name
            ]
            for node_id in spreads[name].due(name, counts, linked, now):
                at[node_id] = (rng.choice(names), now + rng.uniform(1, 4))
                moves.append(now)
        now += ROUND_S
    share = size / len(names)
    counts = Counter(name for name, _ in at.values())
    assert max(counts.values()) - share < max(HANDFUL, MORE * share) + 1
    assert max(counts.values()) - share < HANDFUL or counts[names[-1]] >= LESS * share
    assert len(moves) <= 1.5 * size + 10, "as many as chance needs: every so-many-th lands where it should"
    assert not [moved_at for moved_at in moves if moved_at > 100.0 + 3 * 3600], "it has an end"
