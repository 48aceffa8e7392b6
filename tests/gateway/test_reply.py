"""What clients get at the end: the one shape of every form, and an engine's words only where they may be passed on."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from brain_coord.gateway.dialects import CHAT, DIALECTS, MESSAGES
from brain_coord.gateway.engine_fault import engine_error
from brain_coord.gateway.errors import CODES, fault
from brain_coord.gateway.reply import LONGEST_S, refusal_of, seconds_of

OPENAI = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'
ANTHROPIC = b'{"type":"error","error":{"type":"not_found_error","message":"no such tool"}}'


def test_an_error_that_has_the_forms_shape_is_known_by_it():
    assert CHAT.is_error(json.loads(OPENAI))
    assert MESSAGES.is_error(json.loads(ANTHROPIC))


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b'{"error":{"message":"m","param":"p","code":"c9"}}', "m", "p"),
        (b'{"error":"only words"}', "only words", None),
        (b'{"detail":"FastAPI says"}', "FastAPI says", None),
        (b'{"detail":[{"loc":["body"]}]}', "the engine answered with status 422", None),
        (b'{"message":"flat"}', "flat", None),
        (b"<html>/etc/nginx</html>", "the engine refused the request (status 422)", None),
        (b"null", "the engine refused the request (status 422)", None),
        (b'{"error":{"message":7}}', "the engine answered with status 422", None),
    ],
)
@pytest.mark.parametrize("path", DIALECTS)
def test_any_other_error_is_put_into_it(path, body, message, param):
    told = refusal_of(engine_error(422, body))
    assert (told.status, told.message, told.param) == (422, message, param)
    shaped = json.loads(DIALECTS[path].error_body(told, "req-1"))
    assert shaped["error"]["message"] == message
    assert shaped["error"]["code"] == ("c9" if b"c9" in body else "engine_refused")
    assert ("type" in shaped) is path.startswith(MESSAGES.path)


@pytest.mark.parametrize("value", [[[]], {"a": 1}, None])
def test_what_an_error_says_in_no_words_is_not_told(value):
    told = refusal_of(engine_error(400, json.dumps({"error": {"message": "m", "code": value}}).encode()))
    assert told.code == "engine_refused"


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("path", DIALECTS)
def test_every_error_has_the_shape_of_every_form_also_as_an_event(path, code):
    error = fault(code, "what happened", brain={"receipt": "r-1"})
    dialect = DIALECTS[path]
    body = json.loads(dialect.error_body(error, "req-1"))
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["brain"] == {"receipt": "r-1"}
    event = dialect.error_event(error, "req-1")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    data = json.loads(event.partition(b"data: ")[2])
    assert data["error"] == body["error"]
    assert event.startswith(b"event: error\n") is path.startswith(("/v1/messages", "/v1/responses"))
    assert dialect.is_error(body)


def test_a_time_to_come_back_may_be_seconds_or_a_date():
    assert seconds_of("17") == 17
    assert seconds_of(None) is None
    assert seconds_of("") is None
    assert seconds_of("soon") is None
    assert seconds_of("²") is None
    assert seconds_of("Mon, 20 Nov 99999999999999999999 19:12:08") is None
    assert seconds_of("9" * 5000) == seconds_of("9" * 20) == LONGEST_S
    later = datetime.now(UTC) + timedelta(seconds=60)
    assert seconds_of(format_datetime(later, usegmt=True)) in range(55, 62)
    assert seconds_of(format_datetime(later - timedelta(hours=1))) == 1
    assert seconds_of(format_datetime(later + timedelta(days=9))) == LONGEST_S
