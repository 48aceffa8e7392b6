"""Sentences: what they shorten, round, name and count."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.routing import (
    ClassRequest,
    ModelNeed,
    NodeRequest,
    decide_auto_node,
    decide_class,
    decide_node,
    routing_sentence,
)
from brain_coord.routing.rejections import vram_shortfall
from brain_coord.routing.sentences import number, shorten_ids
from brain_coord.routing.vocabulary import Basis, Liveness, Privacy, ResourceClass
from tests.support.registries import MODEL, NEED, NODE_IDS, a_class, a_node

# Ids


def test_the_reference_sentence_comes_out_as_it_stands():
    nodes = [
        a_node("N-C7E0000000000000", basis=Basis.UNMEASURED),
        a_node("N-3A4F000000000000", reported_vram_mib=8188),
        a_node("N-9B12000000000000", state=Liveness.OFFLINE),
    ]
    assert decide_node(NodeRequest(), ModelNeed(MODEL, 20480), nodes).reason == (
        "0 of 3 nodes can serve qwen/qwen2.5-7b-instruct right now (N-3A4F…: VRAM 8 GB < 20 GB required; "
        "N-9B12…: offline; N-C7E0…: not yet benchmarked)"
    )


def test_ids_are_shortened_as_far_as_the_sentence_can_tell_them_apart():
    ids = ["N-3A4F0AAA00000000", "N-3A4F0ABB00000000", "N-9B12000000000000"]
    assert list(shorten_ids(ids).values()) == ["N-3A4F0AA…", "N-3A4F0AB…", "N-9B12000…"]


def test_ids_that_are_short_already_stay_whole():
    assert shorten_ids(["N-AB", "gpu7", "N-ABCD"]) == {"N-AB": "N-AB", "gpu7": "gpu7", "N-ABCD": "N-ABCD"}


@given(st.lists(NODE_IDS | st.text(max_size=8), unique=True, max_size=30))
def test_shortened_ids_stay_distinct_prefixes(ids):
    shortened = shorten_ids(ids)
    assert len(set(shortened.values())) == len(ids)
    assert all(node_id.startswith(short.removesuffix("…")) for node_id, short in shortened.items())


# Gigabytes


@pytest.mark.parametrize(
    ("reported_mib", "required_mib", "words"),
    [
        (8188, 20480, "VRAM 8 GB < 20 GB required"),
        (12282, 22500, "VRAM 12 GB < 22 GB required"),
        (22919, 24576, "VRAM 22 GB < 24 GB required"),
        (23028, 24576, "VRAM 22 GB < 24 GB required"),
        (24064, 49152, "VRAM 24 GB < 48 GB required"),  # 23.5 rounds up
        (24063, 49152, "VRAM 23 GB < 48 GB required"),
        (8188, 8193, "VRAM 8 GB < 9 GB required"),
        (0, 1, "VRAM 0 GB < 1 GB required"),
        # Whole GB would read the same.
        (7987, 8192, "VRAM 7.8 GB < 8.0 GB required"),
        (8000, 8192, "VRAM 7.8 GB < 8.0 GB required"),
        # One decimal would too: the card is still short, and the sentence must not deny it.
        (8188, 8192, "VRAM 7.9 GB < 8.0 GB required"),
        (8191, 8192, "VRAM 7.9 GB < 8.0 GB required"),
    ],
)
@pytest.mark.case("A-06")
def test_a_shortfall_is_told_in_gb(reported_mib, required_mib, words):
    assert vram_shortfall(reported_mib, required_mib) == words


@given(st.integers(0, 200_000), st.integers(1, 200_000))
@pytest.mark.case("A-06")
def test_a_shortfall_never_reads_as_enough(reported_mib, shortfall_mib):
    words = vram_shortfall(reported_mib, reported_mib + shortfall_mib)
    reported, required = map(float, re.findall(r"([\d.]+) GB", words))
    assert reported < required
    assert abs(reported - reported_mib / 1024) <= 0.5


# Many nodes


def crowd(states):
    return [a_node(f"{index:04X}", state=state, active=4) for index, state in enumerate(states)]


def test_twenty_nodes_are_all_named():
    reason = decide_node(NodeRequest(), NEED, crowd([Liveness.OFFLINE] * 20)).reason
    assert reason.count("offline") == 20
    assert "more" not in reason


def test_of_more_nodes_the_rest_is_counted_by_first_reason_the_most_frequent_first():
    states = [Liveness.OFFLINE] * 20 + [Liveness.BUSY] * 4 + [Liveness.DRAINING] * 4 + [Liveness.OFFLINE]
    decision = decide_node(NodeRequest(), NEED, crowd(states)[::-1])
    assert decision.reason.startswith(
        f"0 of 29 nodes can serve {MODEL} right now (N-0000…: offline; N-0001…: offline; "
    )
    assert decision.reason.endswith("N-0013…: offline; and 9 more: 4 × draining, 4 × no free slot, 1 × offline)")
    assert len(decision.rejections) == 29


def test_brain_auto_counts_the_rest_too():
    reason = decide_auto_node(NodeRequest(), [NEED], crowd([Liveness.OFFLINE] * 22)).reason
    assert reason.endswith("; and 2 more: 2 × offline)")


def test_without_nodes_the_sentence_says_that_none_has_joined():
    assert (
        decide_node(NodeRequest(), NEED, []).reason == f"0 of 0 nodes can serve {MODEL} right now (no node has joined)"
    )


# The node and class that were chosen


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "1.0"), (0.0, "0.0"), (0.25, "0.25"), (0.351562, "0.351562"), (0.1 + 0.2, "0.3")]
)
def test_numbers_are_shown_without_trailing_zeros(value, words):
    assert number(value) == words


def test_the_chosen_node_is_explained_by_its_sum():
    decision = decide_node(NodeRequest(), NEED, [a_node(active=1, reliability=80, ask_usd_per_1m=0.5)])
    assert decision.reason == (
        "N-A000…: score 0.807 = 0.30·capability 1.0 + 0.25·availability 0.75 + 0.15·latency 0.93 "
        "+ 0.20·reputation 0.8 + 0.10·price 0.2"
    )


def test_what_was_not_known_of_the_chosen_node_follows_its_sum():
    assert decide_node(NodeRequest(), NEED, [a_node(tok_s={})]).reason.endswith("(speed unmeasured, no ask set)")


def test_the_routing_sentence_joins_class_and_node():
    chosen = decide_class(ClassRequest(privacy=Privacy.PUBLIC), [a_class(ResourceClass.NATIVE_NETWORK)])
    node = decide_node(NodeRequest(), NEED, [a_node()])
    assert routing_sentence(chosen, node) == f"NATIVE_NETWORK (COMMUNITY) → {node.reason}"


def test_the_routing_sentence_of_a_class_without_nodes_is_its_own():
    chosen = decide_class(ClassRequest(), [a_class(ResourceClass.EXTERNAL_MODEL)])
    assert routing_sentence(chosen, decide_node(NodeRequest(), NEED, [])) == chosen.reason
    assert routing_sentence(chosen, None) == chosen.reason


def test_the_routing_sentence_of_a_pinned_model_is_the_node_s():
    node = decide_node(NodeRequest(), NEED, [])
    assert routing_sentence(None, node) == node.reason
    assert routing_sentence(None, None) == "nothing to decide"
