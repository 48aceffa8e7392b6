"""A name that is not there gets those that may have been meant."""

from brain_node.contract.nearest import did_you_mean, nearest

IDS = ["N-3A4F000000000001", "N-3A4F000000000002", "N-9B12000000000003"]


def test_names_that_begin_as_typed_come_first():
    assert nearest("N-3A4F", IDS) == IDS[:2]


def test_else_those_that_look_like_it():
    assert nearest("N-9B12000000000004", IDS)[0] == IDS[2]
    assert nearest("statsu", ["status", "stop", "start"])[0] == "status"


def test_nothing_near_says_what_to_do_instead():
    assert did_you_mean("zzz", IDS, "See: list") == "See: list"
    assert did_you_mean("", IDS, "See: list") == "See: list"
    assert did_you_mean("N-9B", IDS, "") == "Did you mean N-9B12000000000003?"
