"""`brain/auto`: the best pair of node and model."""

import pytest

from brain_coord.routing import ModelNeed, NodeRequest, decide_auto_node
from brain_coord.routing.vocabulary import Liveness
from tests.support.registries import MODEL, OTHER, a_node

BIG, SMALL, MOCK = ModelNeed(MODEL, 20000), ModelNeed(OTHER, 6000), ModelNeed("brain/mock", mock=True)
CATALOG = [BIG, SMALL, MOCK]
BOTH = frozenset({MODEL, OTHER})
ANY = NodeRequest()


def test_the_best_pair_wins_whichever_model_it_is():
    busy, idle = a_node("A", active=3), a_node("B", serves={OTHER}, loaded={OTHER}, tok_s={OTHER: 50.0})
    decision = decide_auto_node(ANY, CATALOG, [busy, idle])
    assert (decision.model, decision.selected) == (OTHER, idle.node_id)
    assert [(pair.model.model_id, pair.score.node_id[2]) for pair in decision.ranked] == [(OTHER, "B"), (MODEL, "A")]


def test_equal_pairs_go_to_the_earlier_model_then_to_the_lower_id():
    nodes = [a_node(name, serves=BOTH, loaded=BOTH, tok_s={MODEL: 9.0, OTHER: 9.0}) for name in ("B", "A")]
    for catalog in ([BIG, SMALL], [SMALL, BIG]):
        ranked = [(pair.model, pair.score.node_id[2]) for pair in decide_auto_node(ANY, catalog, nodes).ranked]
        assert ranked == [(model, name) for model in catalog for name in "AB"]


def test_a_mock_model_is_never_chosen():
    decision = decide_auto_node(ANY, CATALOG, [a_node("A", serves={"brain/mock"}, loaded={"brain/mock"})])
    assert decision.selected is None
    assert decision.reason == (
        "0 of 1 nodes can serve brain/auto right now (N-A000…: does not serve any real model of the catalog)"
    )


def test_a_model_named_like_our_words_does_not_pass_for_one_of_the_catalog():
    node = a_node("A", serves={"any real model of the catalog"})
    rejections = decide_auto_node(ANY, CATALOG, [node]).rejections
    assert rejections == {node.node_id: ["does not serve any real model of the catalog"]}


def test_a_node_is_told_what_it_lacks_for_the_model_it_comes_nearest_to():
    small_card = a_node("A", serves=BOTH, reported_vram_mib=8188, active=4)
    decision = decide_auto_node(ANY, CATALOG, [small_card, a_node("B", state=Liveness.OFFLINE)])
    assert decision.reason == "0 of 2 nodes can serve brain/auto right now (N-A000…: no free slot; N-B000…: offline)"
    assert decision.worth_waiting


def test_a_node_that_can_serve_one_model_is_not_rejected_for_another():
    decision = decide_auto_node(ANY, CATALOG, [a_node("A", serves=BOTH, reported_vram_mib=8188)])
    assert (decision.model, decision.rejections) == (OTHER, {})


def test_a_pinned_node_is_the_only_candidate():
    decision = decide_auto_node(NodeRequest(node=a_node("B").node_id), CATALOG, [a_node("A"), a_node("B", active=2)])
    assert (decision.selected, decision.considered) == (a_node("B").node_id, 1)


@pytest.mark.parametrize(
    ("catalog", "nodes", "why"),
    [
        ([MOCK], [a_node()], "0 of 1 nodes can serve brain/auto right now (the catalog has no real model)"),
        (CATALOG, [], "0 of 0 nodes can serve brain/auto right now (no node has joined)"),
    ],
)
def test_without_models_or_nodes_the_sentence_says_so(catalog, nodes, why):
    assert decide_auto_node(ANY, catalog, nodes).reason == why


def test_the_sentence_names_the_model_that_was_chosen():
    reason = decide_auto_node(ANY, CATALOG, [a_node()]).reason
    assert reason.startswith(f"N-A000… with {MODEL}: score 0.")


def test_json_names_the_model_of_every_pair():
    members = decide_auto_node(ANY, CATALOG, [a_node("A", serves=BOTH)]).to_dict()
    assert members["model"] == MODEL
    assert [entry["model"] for entry in members["ranked"]] == [MODEL, OTHER]
    assert set(members["pools"]) == BOTH
