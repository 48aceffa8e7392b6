"""Sessions of operators: how long one lasts, what ends it, and that guesses harm nobody."""

from pathlib import Path

import pytest

from brain_coord.web.operator.secret import OperatorSecret, create_secret, read_secret, revoke_secret
from brain_coord.web.operator.sessions import IDLE_S, LIFE_S, MOST, Sessions


@pytest.fixture
def text(tmp_path: Path) -> str:
    return create_secret(tmp_path, 1.0)


@pytest.fixture
def secret(tmp_path: Path, text: str) -> OperatorSecret:
    found = read_secret(tmp_path)
    assert found is not None
    return found


def test_a_session_ends_when_it_is_idle_or_old(secret: OperatorSecret, text: str):
    sessions = Sessions()
    token = sessions.log_in(secret, text, 0.0)
    assert sessions.find(token, secret, IDLE_S - 1) is not None
    assert sessions.find(token, secret, 2 * IDLE_S) is None
    token = sessions.log_in(secret, text, 0.0)
    for at in range(0, int(LIFE_S), int(IDLE_S / 2)):
        assert sessions.find(token, secret, float(at)) is not None
    assert sessions.find(token, secret, LIFE_S) is None


def test_a_new_secret_ends_the_sessions_of_the_old_one(tmp_path: Path, secret: OperatorSecret, text: str):
    sessions = Sessions()
    token = sessions.log_in(secret, text, 0.0)
    again = create_secret(tmp_path, 2.0)
    assert again != text
    assert sessions.find(token, read_secret(tmp_path), 1.0) is None
    assert sessions.find(token, secret, 1.0) is None  # ended for good, also if the old one came back


def test_nobody_gets_in_without_a_secret_or_with_a_damaged_one(tmp_path: Path, secret: OperatorSecret, text: str):
    sessions = Sessions()
    token = sessions.log_in(secret, text, 0.0)
    (tmp_path / "operator.json").write_text("{}")
    assert read_secret(tmp_path) is None
    assert sessions.find(token, None, 1.0) is None
    assert sessions.log_in(None, text, 1.0) is None
    assert revoke_secret(tmp_path)
    assert not revoke_secret(tmp_path)


def test_no_number_of_wrong_guesses_keeps_the_operator_out(secret: OperatorSecret, text: str):
    sessions = Sessions()
    assert [sessions.log_in(secret, f"bo-{guess}", 0.0) for guess in range(100)] == [None] * 100
    assert sessions.log_in(secret, text, 0.0) is not None


def test_sessions_are_bounded(secret: OperatorSecret, text: str):
    sessions = Sessions()
    tokens = [sessions.log_in(secret, text, float(number)) for number in range(MOST + 1)]
    assert sessions.find(tokens[0], secret, float(MOST + 1)) is None
    assert sessions.find(tokens[-1], secret, float(MOST + 1)) is not None
