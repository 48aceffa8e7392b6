"""The five states, each with its reason and its way back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.fleet.states import Facts, explain_state

READY = Facts(connected=True)


@pytest.mark.parametrize(
    ("facts", "state", "reason"),
    [
        (Facts(), "OFFLINE", "it has not joined since the coordinator started"),
        (Facts(left_because="its link closed"), "OFFLINE", "its link closed"),
        (Facts(banned="spam"), "OFFLINE", "banned: spam"),
        (READY, "ONLINE", "ready"),
        (replace(READY, active=2), "BUSY", "runs 2 job(s)"),
        (replace(READY, degraded="5 jobs in a row failed"), "DEGRADED", "5 jobs in a row failed"),
        (replace(READY, operator_drains=True), "DRAINING", "drained by the operator"),
        (replace(READY, node_drains=True), "DRAINING", "the node takes no new jobs"),
        (replace(READY, closing=True), "DRAINING", "its session is being closed"),
    ],
)
def test_each_state_has_its_reason(facts, state, reason):
    view = explain_state(facts)
    assert (view.state, view.reason) == (state, reason)
    assert view.way_back


def test_a_degraded_node_says_when_its_next_canary_comes():
    assert "300 s" in explain_state(replace(READY, degraded="x", next_probe_in_s=300.0)).way_back


FACTS = st.builds(
    Facts,
    connected=st.booleans(),
    banned=st.none() | st.just("b"),
    closing=st.booleans(),
    operator_drains=st.booleans(),
    node_drains=st.booleans(),
    degraded=st.none() | st.just("d"),
    active=st.integers(0, 3),
)


@given(FACTS)
def test_from_wherever_a_node_is_there_is_a_way_to_online(facts):
    for _ in range(6):
        state = explain_state(facts).state
        if state == "ONLINE":
            break
        facts = {
            "OFFLINE": lambda f: replace(f, connected=True, banned=None, closing=False, node_drains=False),
            "DRAINING": lambda f: replace(f, operator_drains=False, node_drains=False, closing=False),
            "DEGRADED": lambda f: replace(f, degraded=None),
            "BUSY": lambda f: replace(f, active=0),
        }[state](facts)
    assert explain_state(facts).state == "ONLINE"


@given(FACTS)
def test_rejoining_ends_offline_and_nothing_else(facts):
    after = explain_state(replace(facts, connected=True, closing=False))
    if facts.degraded and not (facts.operator_drains or facts.node_drains):
        assert after.state == "DEGRADED"
    if facts.operator_drains:
        assert after.state == "DRAINING"
