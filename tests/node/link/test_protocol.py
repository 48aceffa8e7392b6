"""The link's frames and clocks, without sockets."""

import orjson
import pytest

from brain_node.contract.identity import Identity, verify_hello
from brain_node.contract.messages import MessageError, ModelOffer, Offer, Report
from brain_node.exit_codes import AUTH_REFUSED, CONFIG
from brain_node.link.faults import LinkError
from brain_node.link.protocol import LinkProtocol, Phase

CHALLENGE = '{"type": "challenge", "protocol": 1, "coordinator_key": "a2V5", "nonce": "bm9uY2U="}'
WELCOME = orjson.dumps(
    {
        "type": "welcome",
        "session": "s1",
        "heartbeat_s": 15.0,
        "ping_s": 20.0,
        "slot_ticket": "t",
        "limits": {"body_bytes": 100, "frame_bytes": 1024, "spare_slots": 2},
    }
).decode()


def protocol(token: str | None = None) -> LinkProtocol:
    offer = Offer(models=(ModelOffer(id="brain/mock"),), slots=2, ask_usd_per_1m=0.1)
    return LinkProtocol(Identity.generate(), token, lambda: (Report(os="Linux"), offer), now=0.0)


def opened() -> LinkProtocol:
    link = protocol()
    link.received(CHALLENGE, 0.1)
    link.received(WELCOME, 0.2)
    return link


def refused(**fields) -> str:
    return orjson.dumps({"type": "refused", "code": "x", "message": "no", "retry": False, **fields}).decode()


def test_the_hello_proves_itself_against_the_challenge():
    step = protocol(token="NODE-TESTSECRET").received(CHALLENGE, 0.1)
    hello = orjson.loads(step.send[0])
    assert verify_hello(hello, "a2V5", "bm9uY2U=") is None
    assert hello["token"] == "NODE-TESTSECRET"
    assert hello["offer"]["ask_usd_per_1m"] == 0.1


def test_a_hello_without_a_token_does_not_mention_one():
    assert "token" not in orjson.loads(protocol().received(CHALLENGE, 0.1).send[0])


def test_the_welcome_opens_the_session():
    link = opened()
    assert link.phase is Phase.OPEN


def welcomed(**changes) -> LinkProtocol:
    link = protocol()
    link.received(CHALLENGE, 0.0)
    link.received(orjson.dumps(orjson.loads(WELCOME) | changes).decode(), 0.0)
    return link


@pytest.mark.parametrize(
    ("told_s", "kept_s"), [(0, 15.0), (-0.0, 15.0), (5e-324, 0.1), (0.2, 0.2), (15, 15.0), (6e5, 300.0)]
)
def test_whatever_period_it_is_told_a_node_neither_only_beats_nor_falls_silent(told_s, kept_s):
    assert welcomed(heartbeat_s=told_s).heartbeat_s == kept_s


@pytest.mark.parametrize(("told_s", "silent_s"), [(0, 60.0), (5e-324, 0.3), (20, 60.0), (6e5, 1.8e6)])
def test_however_short_the_pings_are_said_to_be_a_link_gets_time_for_one(told_s, silent_s):
    assert welcomed(ping_s=told_s).check_at == pytest.approx(silent_s)


@pytest.mark.parametrize("limits", [{"frame_bytes": 1}, {"frame_bytes": 1 << 40}, {"body_bytes": 1 << 62}])
def test_limits_that_would_cost_a_node_its_processor_or_memory_are_no_welcome(limits):
    with pytest.raises(MessageError, match=f"welcome: limits.{next(iter(limits))}"):
        welcomed(limits=orjson.loads(WELCOME)["limits"] | limits)


def test_a_ping_is_answered_with_its_number():
    assert orjson.loads(opened().received('{"type": "ping", "n": 41}', 1.0).send[0]) == {"type": "pong", "n": 41}


@pytest.mark.parametrize("kind", ["notice", "drain", "open_slots"])
def test_events_are_handed_up(kind):
    fields = {"notice": {"code": "c", "message": "m"}, "drain": {"deadline_s": 3.0}, "open_slots": {"n": 2}}[kind]
    frame = orjson.dumps({"type": kind, **fields}).decode()
    events = opened().received(frame, 1.0).events
    assert [event.TYPE for event in events] == [kind]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("bad_token", AUTH_REFUSED),
        ("banned", AUTH_REFUSED),
        ("protocol", CONFIG),
        ("id_taken", CONFIG),
        ("novel", CONFIG),
    ],
)
@pytest.mark.case("F-04")
def test_a_permanent_refusal_ends_the_agent_with_a_code_that_systemd_does_not_restart(code, exit_code):
    link = protocol()
    link.received(CHALLENGE, 0.1)
    with pytest.raises(LinkError) as caught:
        link.received(refused(code=code), 0.2)
    assert caught.value.fault.exit_code == exit_code
    assert caught.value.fault.next_step


def test_a_refusal_for_the_version_says_which_end_to_update():
    link = protocol()
    link.received(CHALLENGE, 0.1)
    with pytest.raises(LinkError) as caught:
        link.received(refused(code="protocol"), 0.2)
    assert "update brain-node" in caught.value.fault.next_step


@pytest.mark.case("D-03")
def test_a_refusal_that_may_pass_is_retried_as_late_as_asked():
    with pytest.raises(LinkError) as caught:
        opened().received(refused(retry=True, retry_after_s=17.0), 0.2)
    fault = caught.value.fault
    assert (fault.exit_code, fault.retry_after_s, fault.slow) == (None, 17.0, True)


@pytest.mark.case("D-05")
def test_a_duplicate_is_told_what_to_do():
    with pytest.raises(LinkError) as caught:
        opened().received(refused(code="duplicate_node", retry=True), 0.2)
    assert "another machine" in str(caught.value)
    assert "node.key" in str(caught.value)


def test_an_older_coordinator_is_named():
    with pytest.raises(LinkError, match="protocol 0"):
        protocol().received(CHALLENGE.replace('"protocol": 1', '"protocol": 0'), 0.1)


@pytest.mark.parametrize("frame", [b"binary", "rubbish", WELCOME, '{"type": "ping", "n": 1}', CHALLENGE[:-1]])
def test_what_breaks_the_protocol_is_an_error(frame):
    with pytest.raises(MessageError):
        protocol().received(frame, 0.1)


def test_a_type_from_the_future_is_ignored():
    assert opened().received('{"type": "from_the_future"}', 1.0).send == []


def test_a_coordinator_that_never_answers_is_given_up():
    link = protocol()
    with pytest.raises(LinkError, match="did not answer"):
        link.check(link.check_at)


@pytest.mark.case("D-02")
def test_three_silent_periods_end_the_link():
    link = opened()
    assert link.check_at == pytest.approx(60.2)
    link.received('{"type": "ping", "n": 1}', 50.0)
    link.check(60.2)
    assert link.check_at == pytest.approx(110.0)
    with pytest.raises(LinkError, match="silent for 60 s"):
        link.check(110.0)


@pytest.mark.case("D-01")
def test_an_agent_that_was_itself_stalled_reads_first_and_judges_later():
    link = opened()
    link.check(500.0)
    assert 500.0 < link.check_at <= 520.1
    with pytest.raises(LinkError):
        link.check(link.check_at)
