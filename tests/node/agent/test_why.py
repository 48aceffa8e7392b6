"""What the coordinator said lately."""

from brain_node.agent.why import WINDOW_S, Notices
from brain_node.contract.messages import Notice


def test_notices_are_counted_by_code_and_forgotten_after_an_hour():
    notices = Notices()
    notices.add(Notice(code="old", message="x"), 0.0, 1.0)
    for n in range(3):
        notices.add(Notice(code="skipped", message=f"reason {n}"), 100.0 + n, 2.0)
    assert [row["code"] for row in notices.summary(200.0)["notices"]] == ["skipped", "old"]
    rows = notices.summary(WINDOW_S + 50.0)["notices"]
    assert [(row["code"], row["count"], row["message"]) for row in rows] == [("skipped", 3, "reason 2")]


def test_the_newest_skip_counts_win():
    notices = Notices()
    for count in (1, 7):
        notices.add(Notice(code="skips", message="m", data={"skipped": {"ask above budget": count}}), 0.0, 0.0)
    assert notices.summary(1.0)["skipped"] == {"ask above budget": 7}


def test_nothing_said_is_nothing_shown():
    assert Notices().summary(0.0) == {"window_s": WINDOW_S, "notices": [], "skipped": None}


def test_skip_counts_are_plain_reasons_and_numbers():
    notices, said = Notices(), {"ask\x1b[2J above": 7, "odd": ["\x1b[2J"], "text": "\x1b[2J"}
    notices.add(Notice(code="skips", message="m", data={"skipped": said}), 0.0, 0.0)
    assert notices.summary(1.0)["skipped"] == {"ask [2J above": 7}


def test_skip_counts_are_forgotten_after_an_hour_too():
    notices = Notices()
    notices.add(Notice(code="skips", message="m", data={"skipped": {"ask above budget": 1}}), 0.0, 0.0)
    assert notices.summary(WINDOW_S + 1.0)["skipped"] is None
