"""ROUTING.md says what the code does: its tables are the constants, its examples come out."""

import json
import re
from pathlib import Path

import pytest

from brain_coord.fleet import reliability
from brain_coord.routing import NodeRequest, decide, decide_node, read_snapshot, record, snapshot, weights
from brain_coord.routing.node_decision import NOTES
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Liveness, Mode, Privacy, ResourceClass
from tests.support.registries import MODEL, NEED, a_node

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "ROUTING.md").read_text()


def table(name):
    """The rows of a marked table, without its head, each cell stripped."""
    lines = TEXT.split(f"<!-- table: {name} -->\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def example(name):
    """The JSON of a marked example and the sentence that follows it."""
    part = TEXT.split(f"<!-- example: {name} -->\n")[1]
    given, said = re.search(r"```json\n(.*?)```.*?```text\n(.*?)\n```", part, re.DOTALL).groups()
    return json.loads(given), said


def test_the_classes_and_their_trust():
    assert {row[0]: row[2] for row in table("classes")} == {each: weights.TRUST_OF[each] for each in ResourceClass}


def test_what_each_privacy_level_allows():
    assert {row[0]: set(row[1].split(", ")) for row in table("privacy")} == {
        each: weights.ALLOWED_TRUST[each] for each in Privacy
    }


def test_the_exclusion_codes_in_order():
    assert [row[0].strip("`") for row in table("exclusions")] == list(Exclusion)


def test_the_settings_of_community_first():
    assert [row[0].split("`")[1] for row in table("community")] == list(CommunityFirst)


def test_the_class_weights_of_every_mode():
    shown = {mode: [float(cell) for cell in row[1:]] for row in table("class weights") for mode in row[0].split(", ")}
    assert shown == {
        mode: [each.cost, each.latency, each.reliability, each.quality, each.unknown_penalty]
        for mode, each in weights.CLASS_WEIGHTS.items()
    }
    assert set(shown) == set(Mode)


@pytest.mark.parametrize("mode", Mode)
def test_the_class_weights_of_a_mode_sum_to_1(mode):
    each = weights.CLASS_WEIGHTS[mode]
    assert each.cost + each.latency + each.reliability + each.quality == pytest.approx(1)


NODE_WEIGHTS = {
    "capability": weights.CAPABILITY_WEIGHT,
    "availability": weights.AVAILABILITY_WEIGHT,
    "latency": weights.LATENCY_WEIGHT,
    "reputation": weights.REPUTATION_WEIGHT,
    "price": weights.PRICE_WEIGHT,
}


def test_the_node_weights_and_the_formula_above_them():
    assert {row[0]: float(row[1]) for row in table("node weights")} == NODE_WEIGHTS
    assert "NodeScore = " + " + ".join(f"{weight:.2f} {term}" for term, weight in NODE_WEIGHTS.items()) in TEXT
    assert sum(NODE_WEIGHTS.values()) == pytest.approx(1)


def test_the_constants_of_the_node_terms():
    shown = [float(row[1]) for row in table("node constants")]
    assert shown == [
        weights.LOADED_FACTOR,
        weights.NOT_LOADED_FACTOR,
        weights.SPEED_FLOOR,
        weights.UNMEASURED_SPEED_RATIO,
        weights.QUEUE_DEPTH_PER_SLOT,
        weights.RTT_CEILING_MS,
        weights.RTT_SHARE,
        weights.MEDIAN_BONUS,
        weights.REGION_BONUS,
        weights.UNMEASURED_LATENCY,
        weights.PRICE_FLOOR,
        weights.UNSET_PRICE,
        weights.SCORE_DECIMALS,
        weights.NAMED_NODES,
    ]


def test_the_rejections_in_order():
    shown = [row[0].strip("`").replace("serve M", f"serve {MODEL}") for row in table("rejections")]
    nodes = [
        a_node(str(index), state=state, active=4) for index, state in enumerate(["OFFLINE", "DRAINING", "DEGRADED"])
    ]
    request = {"region": "R", "require_region": True, "max_ask_usd_per_1m": 0.0, "model": MODEL}
    hopeless = {
        "node_id": "N-1",
        "state": Liveness.BUSY,
        "slots": 1,
        "active": 1,
        "vram_mib": 8188,
        "ask_usd_per_1m": 1,
    }
    whole = {"request": request, "model": {"id": MODEL, "min_vram_mib": 20480}, "nodes": [hopeless]}
    states = [reasons[0] for reasons in decide_node(NodeRequest(), NEED, nodes).rejections.values()]
    assert shown == states + decide(read_snapshot(whole)).node_decision.rejections["N-1"]


def test_the_notes_in_order():
    assert [row[0].strip("`") for row in table("notes")] == list(NOTES)


def test_the_constants_of_the_reliability_score():
    assert [float(row[1].replace("−", "-")) for row in table("reliability")] == [
        reliability.START_SCORE,
        reliability.FULL_EVIDENCE,
        reliability.COMPLETED_WEIGHT,
        reliability.IN_TIME_WEIGHT,
        reliability.UPTIME_WEIGHT,
        -reliability.MISMATCH_PENALTY,
        -reliability.CANARY_PENALTY,
        reliability.WINDOW_OUTCOMES,
        reliability.WINDOW_S / 86400,
    ]


def test_the_class_example_comes_out():
    given, said = example("class")
    decision = decide(read_snapshot(given)).class_decision
    assert decision.reason == said
    assert {row.resource_class: row.score for row in decision.rows} == {
        "EXTERNAL_MODEL": 0.21,
        "CLOUD_GPU": 0.4425,
        "NATIVE_NETWORK": None,
    }
    assert "CLOUD_GPU scores 0.4425, EXTERNAL_MODEL 0.21." in TEXT


def test_the_node_example_comes_out():
    given, said = example("node")
    decision = decide(read_snapshot(given)).node_decision
    assert decision.reason == said
    assert [score.total for score in decision.ranked] == [0.7625, 0.683]
    assert "The second scores 0.683, the first wins" in TEXT
    assert decision.rejections == {"N-C7E0123456789ABC": ["not yet benchmarked", "VRAM 8 GB < 20 GB required"]}


def test_the_reliability_example_comes_out():
    given, said = example("reliability")
    outcomes = reliability.Outcomes(uptime_fraction=given.pop("uptime"), **given)
    assert reliability.explain(outcomes).sentence() == said


def test_every_member_of_a_snapshot_is_described():
    source = Path(snapshot.__file__).read_text()
    members = set(
        re.findall(r'\.(?:required_)?(?:text|texts|flag|number|numbers|count|choice|parts?)\("(\w+)"', source)
    )
    assert len(members) > 30
    described = TEXT.split("## The form of a snapshot")[1]
    assert {member for member in members if f"`{member}`" not in described} == set()


def test_how_many_nodes_a_receipt_keeps():
    assert f"the best {record.NODES_KEPT} and of the first {record.NODES_KEPT} rejected" in " ".join(TEXT.split())
