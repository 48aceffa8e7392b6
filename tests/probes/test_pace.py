"""How often nodes are asked."""

from random import Random

from brain_coord.fleet.node import Node
from brain_coord.probes.pace import NEW_OUTCOMES, ProbeSettings, next_plan, shadow_share

SETTINGS = ProbeSettings()


def a_node(done=100, **members):
    node = Node("N-" + "0" * 16, b"", **members)
    node.done = done
    return node


def plans(node, settings=SETTINGS):
    return [next_plan(node, settings, 0.0, Random(seed)) for seed in range(200)]


def test_hourly_or_after_25_jobs_and_never_to_the_minute():
    made = plans(a_node())
    assert 2700 <= min(plan.at for plan in made) < 3000
    assert 4200 < max(plan.at for plan in made) <= 4500
    assert min(plan.jobs for plan in made) < 21
    assert max(plan.jobs for plan in made) > 29


def test_whichever_comes_first():
    node, plan = a_node(), plans(a_node())[0]
    assert not plan.due(node, plan.at - 1)
    assert plan.due(node, plan.at)
    node.load.ended = plan.jobs
    assert plan.due(node, 0.0)


def test_new_and_doubted_nodes_are_asked_more_often():
    new, doubted = a_node(done=0), a_node()
    doubted.health.canary(passed=False, now=0.0)
    assert max(plan.at for plan in plans(new)) < 2000
    assert max(plan.at for plan in plans(doubted)) <= 150
    assert max(plan.jobs for plan in plans(doubted)) <= 5


def test_a_closer_look_is_taken_at_new_and_doubted_nodes_and_not_at_trusted_new_ones():
    assert shadow_share(a_node(), SETTINGS) == 0.05
    assert shadow_share(a_node(done=NEW_OUTCOMES - 1), SETTINGS) == 0.25
    assert shadow_share(a_node(done=0, trusted=True), SETTINGS) == 0.05
    doubted = a_node(trusted=True)
    doubted.health.canary(passed=False, now=0.0)
    assert shadow_share(doubted, SETTINGS) == 0.25


def test_the_operator_can_turn_both_off():
    off = ProbeSettings(canary_s=0, shadow_share=0)
    assert not off.canaries
    assert shadow_share(a_node(done=0), off) == 0.0
    assert next_plan(a_node(), ProbeSettings(canary_jobs=0), 0.0, Random(1)).jobs > 10**9
