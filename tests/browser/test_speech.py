"""Text as it grows: whole characters only, stops across tokens, templates that cannot do harm."""

import json

import pytest

from brain_coord.browser.speech import Speech, SpeechError, Voice
from tests.support.models import build_known_text_model


class Spelled:
    """A tokenizer whose tokens are bytes."""

    ends = frozenset({0})

    def text(self, tokens):
        return bytes(tokens).decode("utf-8", errors="replace")


def said(text: str, stops: tuple[str, ...] = ()) -> list[str]:
    voice = Voice(Spelled(), stops)
    parts = []
    for token in text.encode():
        parts.append(voice.hear(token))
        if voice.stopped:
            return parts
    return [*parts, voice.finish()]


def test_a_character_of_several_tokens_is_told_when_it_is_whole():
    assert said("é€") == ["", "é", "", "", "€", ""]


def test_a_stop_across_tokens_is_never_told():
    assert "".join(said("one END two", ("END",))) == "one "


def test_what_only_began_like_a_stop_is_told_after_all():
    assert "".join(said("an ENd and an EN", ("END",))) == "an ENd and an EN"
    assert all("EN" not in part or "ENd" in part or part == "EN" for part in said("an ENd and an EN", ("END",)))


def test_the_first_of_several_stops_ends_it():
    assert "".join(said("a b c d", ("c", "b"))) == "a "


@pytest.fixture
def folder(tmp_path):
    build_known_text_model(tmp_path)
    return tmp_path


def set_template(folder, template):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))


def test_a_conversation_becomes_the_tokens_of_its_template(folder):
    speech = Speech(folder)
    tokens = speech.prompt([{"role": "user", "content": "Every answer"}], {})
    assert (tokens[0], tokens[-1]) == (4, 7)
    assert speech.ends == {1}
    assert speech.text(tokens[1:3]).strip() == "Every answer"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ nothing.of.it }}",
    ],
)
def test_a_template_that_refuses_or_reaches_out_is_an_error_of_the_request(folder, template):
    set_template(folder, template)
    with pytest.raises(SpeechError):
        Speech(folder).prompt([{"role": "user", "content": "hi"}], {})
