"""What a chat with tabs may ask for: the rest is refused by name, and never silently left out."""

import pytest

from brain_coord.browser.chat_request import UNSUPPORTED, ChatRefused, read_chat
from brain_coord.browser.models import add_model
from brain_coord.browser.sampling import TOP
from brain_coord.browser.speech import Speech
from tests.support.qwen3 import build_known_qwen3

CHAT = {"model": "qwen/qwen3-0.6b", "messages": [{"role": "user", "content": "Go on"}]}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    build_known_qwen3(folder / "model")
    return add_model(folder, folder / "model", CHAT["model"], stages=1, replicas=1), Speech(folder / "model")


@pytest.fixture
def read(known):
    import orjson

    return lambda **more: read_chat(orjson.dumps({**CHAT, **more}), *known)


ASKED = {"modalities": ["text", "audio"], "response_format": {"type": "json_object"}, "repetition_penalty": 1.1}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_tabs_cannot_do_is_refused_by_name(read, name):
    with pytest.raises(ChatRefused, match=f"`{name}`") as refused:
        read(**{name: ASKED.get(name, [2])})
    assert refused.value.param == name
    assert b'"type":"invalid_request_error"' in refused.value.body()


def test_values_that_ask_for_nothing_pass(read):
    nothing = dict.fromkeys(UNSUPPORTED)
    nothing |= {"response_format": {"type": "text"}, "repetition_penalty": 1.0, "modalities": ["text"], "min_p": 0.0}
    assert read(**nothing, tool_choice="none", n=1).most_tokens > 0


def test_sampling_is_taken_over_and_checked(read):
    chat = read(temperature=0.2, top_p=0.5, top_k=5, seed=-7, stop="x", max_tokens=3)
    sampler = chat.sampler
    assert (sampler.temperature, sampler.top_p, sampler.top_k, sampler.seed) == (0.2, 0.5, 5, 7)
    assert (chat.stops, chat.most_tokens) == (("x",), 3)
    assert [read(top_k=value).sampler.top_k for value in (None, -1, 0, 1000)] == [TOP] * 4
    for wrong in ({"top_k": 1.5}, {"top_k": -2}, {"temperature": 3}, {"top_p": True}, {"n": 2}, {"max_tokens": 0}):
        with pytest.raises(ChatRefused):
            read(**wrong)
