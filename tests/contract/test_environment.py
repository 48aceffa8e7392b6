"""A variable that looks like a setting and is none is told, with what may have been meant."""

import pytest

from brain_node.contract.environment import strangers

KNOWN = {
    "BRAIN_COORD_DATA_DIR",
    "BRAIN_COORD_SERVER_PORT",
    "BRAIN_COORD_QUEUE_WAIT_S",
    "BRAIN_COMMUNITY_FIRST",
    "HF_TOKEN",
}


def told(**environ):
    return strangers(environ, "BRAIN_COORD_", KNOWN)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BRAIN_COORD_DATADIR", "BRAIN_COORD_DATA_DIR"),
        ("BRAIN_COORD_PORT", "BRAIN_COORD_SERVER_PORT"),
        ("BRAIN_COORD_QUEUE_WAITS", "BRAIN_COORD_QUEUE_WAIT_S"),
        ("BRAIN_COORD_HF_TOKEN", "HF_TOKEN"),
        ("BRAIN_COMUNITY_FIRST", "BRAIN_COMMUNITY_FIRST"),
        ("BRAIN_CORD_DATA_DIR", "BRAIN_COORD_DATA_DIR"),
    ],
)
def test_a_mistyped_name_gets_the_nearest_setting(name, meant):
    assert told(**{name: "3"}) == [f"environment {name} sets nothing. Did you mean {meant}?"]


def test_a_name_like_no_other_is_told_too():
    assert told(BRAIN_COORD_ZZZ="1") == [
        "environment BRAIN_COORD_ZZZ sets nothing. No setting has this name; the README lists them"
    ]


def test_settings_and_empty_variables_and_those_of_others_are_not():
    assert not told(BRAIN_COORD_DATA_DIR="/x", HF_TOKEN="x", BRAIN_COORD_DATADIR="", BRAIN_API_KEY="x", PATH="/bin")
    assert not told(BRAIN_NODE_DATA_DIR="/x", BRAIN_NODE_SLOT="3")  # the other program's, which tells of them itself


def test_what_a_container_platform_says_of_a_service_of_our_name_is_not():
    port = "BRAIN_COORD_PORT_8470_TCP"
    assert not told(
        BRAIN_COORD_SERVICE_HOST="10.0.0.1",
        BRAIN_COORD_SERVICE_PORT="8470",
        BRAIN_COORD_SERVICE_PORT_HTTP="8470",
        BRAIN_COORD_PORT="tcp://10.0.0.1:8470",
        **{port: "tcp://10.0.0.1:8470", f"{port}_PROTO": "tcp", f"{port}_PORT": "8470", f"{port}_ADDR": "10.0.0.1"},
    )
