"""Wire messages: round trips, limits, and claims that cannot hurt."""

import json

import pytest

from brain_node.contract import messages as m


def test_a_message_survives_the_wire():
    job = m.Job(id="j1", model="qwen/qwen2.5-7b-instruct", path="/v1/chat/completions", deadline_s=60.0, body_bytes=12)
    assert m.decode(m.encode(job)) == job


def test_an_unknown_type_is_no_message_and_no_error():
    assert m.decode('{"type": "from_the_future", "n": 1}') is None


def test_unknown_fields_are_ignored():
    assert m.decode('{"type": "pong", "n": 3, "extra": {"a": 1}}') == m.Pong(n=3)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "[]",
        "{}",
        '{"type": 3}',
        '{"type": "pong"}',
        '{"type": "pong", "n": "3"}',
        '{"type": "pong", "n": NaN}',
        '{"type": "job", "id": "", "model": "m", "path": "/v1/models", "deadline_s": 1, "body_bytes": 0}',
        '{"type": "job", "id": "j", "model": "m", "path": "http://elsewhere/", "deadline_s": 1, "body_bytes": 0}',
        '{"type": "job", "id": "j", "model": "m", "path": "/v1/../admin", "deadline_s": 1, "body_bytes": 0}',
    ],
)
def test_a_malformed_frame_is_one_clear_error(frame):
    with pytest.raises(m.MessageError):
        m.decode(frame)


WELCOME = {
    "type": "welcome",
    "session": "s",
    "heartbeat_s": 1,
    "ping_s": 1,
    "slot_ticket": "t",
    "limits": {"body_bytes": 9999, "frame_bytes": 9999, "spare_slots": 1},
}
TO_A_NODE = {
    "challenge": ({"protocol": 1, "coordinator_key": "", "nonce": ""}, ["protocol"]),
    "welcome": (WELCOME, ["heartbeat_s", "ping_s"]),
    "refused": ({"code": "c", "message": "m", "retry": True, "retry_after_s": 1}, ["retry_after_s"]),
    "ping": ({"n": 1}, ["n"]),
    "drain": ({"deadline_s": 1}, ["deadline_s"]),
    "open_slots": ({"n": 1}, ["n"]),
    "job": (
        {"id": "j", "model": "m", "path": "/v1/models", "deadline_s": 1, "body_bytes": 0},
        ["deadline_s", "body_bytes"],
    ),
}


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "1e999", "-1e999", "1e300", '"1"', "true", "[1]", "{}"])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, names) in TO_A_NODE.items() for name in names])
def test_what_a_coordinator_says_in_numbers_is_one_or_no_message(kind, name, bad):
    good = json.dumps({"type": kind, **TO_A_NODE[kind][0], name: "BAD"})
    assert m.decode(good.replace('"BAD"', "1")) is not None
    with pytest.raises(m.MessageError):
        m.decode(good.replace('"BAD"', bad))


@pytest.mark.case("E-05")
@pytest.mark.parametrize("bad", ["-1", "1e308", '"12"', "true", "[1]", "1.5"])
def test_a_claim_that_is_no_number_is_dropped_and_named(bad):
    refused: list[str] = []
    beat = m.decode(
        f'{{"type": "heartbeat", "active": {bad}, "telemetry": [{{"name": "card", "free_bytes": {bad}}}]}}', refused
    )
    assert isinstance(beat, m.Heartbeat)
    assert beat.active is None
    assert beat.telemetry[0].free_bytes is None
    assert beat.telemetry[0].name == "card"
    assert sorted(refused) == ["active", "free_bytes"]


@pytest.mark.case("E-05")
@pytest.mark.parametrize("value", ["null", "0", "7"])
def test_a_missing_or_good_claim_is_not_complained_about(value):
    refused: list[str] = []
    m.decode(f'{{"type": "heartbeat", "active": {value}}}', refused)
    assert refused == []


def test_encoding_leaves_out_what_is_absent():
    assert m.encode(m.End(id="j", ok=True)) == '{"type":"end","id":"j","ok":true}'


ESCAPES = "fine\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202egnp"


def test_nothing_that_a_coordinator_says_can_steer_a_terminal():
    refused = m.decode(json.dumps({"type": "refused", "code": ESCAPES, "message": ESCAPES, "retry": True}))
    notice = m.decode(json.dumps({"type": "notice", "code": ESCAPES, "message": ESCAPES}))
    assert isinstance(refused, m.Refused)
    assert isinstance(notice, m.Notice)
    refusal = m.Refusal(model=ESCAPES, reason=ESCAPES)
    for text in (refused.code, refused.message, notice.code, notice.message, refusal.model, refusal.reason):
        assert text.isprintable()
        assert text.startswith("fine ]0;owned")


@pytest.mark.parametrize("cause", [ESCAPES, "two words", "", "x" * 65])
def test_the_cause_of_an_end_is_one_plain_word(cause):
    with pytest.raises(m.MessageError):
        m.decode(json.dumps({"type": "end", "id": "j", "ok": False, "cause": cause}))
