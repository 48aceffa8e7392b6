"""What Anthropic's Python client makes of our answers; run in an environment of its own: BASE_URL KEY MODEL, JSON on stdout."""

import json
import sys

import anthropic

BASE_URL, KEY, MODEL = sys.argv[1:4]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("weather", "clock")]
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY, max_retries=0, timeout=30)
seen = {}


def ask(content, **more):
    return {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": content}], **more}


def check(function):
    seen[function.__name__] = function()


def told(error):
    return [type(error).__name__, error.status_code, error.body["error"]["type"], error.body["error"]["message"]]


@check
def message():
    answer = client.messages.create(**ask("hello"))
    brain = answer.model_extra["brain"]
    same = answer._request_id == brain["request_id"]
    return [answer.content[0].text, answer.stop_reason, answer.usage.input_tokens, answer.usage.output_tokens, same]


@check
def stream():
    with client.messages.stream(**ask("hello")) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    return [text, final.stop_reason, final.usage.input_tokens, final.usage.output_tokens]


@check
def raw_stream():
    events = list(client.messages.create(**ask("hello", stream=True)))
    return [events[0].type, events[-1].type, "receipt" in events[-1].model_extra["brain"]]


@check
def tools():
    return [[block.name, block.input] for block in client.messages.create(**ask("call", tools=TOOLS)).content]


@check
def tools_stream():
    with client.messages.stream(**ask("call", tools=TOOLS)) as stream:
        return [[block.name, block.input] for block in stream.get_final_message().content]


@check
def image():
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    parts = [{"type": "text", "text": "what?"}, {"type": "image", "source": source}]
    return client.messages.create(**ask(parts)).content[0].text


@check
def count_tokens():
    answer = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hello"}], tools=TOOLS)
    return [answer.input_tokens, "receipt" in answer.model_extra["brain"]]


@check
def bearer():
    other = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), auth_token=KEY, api_key=None, max_retries=0)
    return other.messages.create(**ask("hello")).content[0].text


@check
def cancelled_stream():
    words = []
    with client.messages.stream(**ask("talk and hang")) as stream:
        for text in stream.text_stream:
            words.append(text)
            if len(words) == 3:
                break
    return "".join(words)


def failing(client=client, **request):
    try:
        client.messages.create(**request)
    except anthropic.APIStatusError as error:
        return [*told(error), error.request_id is not None]


@check
def errors():
    wrong = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key="sk-wrong", max_retries=0)
    return {
        "bad key": failing(wrong, **ask("hello")),
        "refused by the engine": failing(**ask("refuse")),
        "refused by the engine, streamed": failing(**ask("refuse", stream=True)),
        "unknown model": failing(**ask("hello", model="brain/mocc")),
        "no node": failing(**ask("hello", model="qwen/qwen3-32b")),
    }


@check
def error_in_a_stream():
    words = []
    try:
        stream = client.messages.create(**ask("break", stream=True))
        words.extend(event.delta.text for event in stream if event.type == "content_block_delta")
    except anthropic.APIStatusError as error:
        return ["".join(words), error.body["error"]["code"], error.body["error"]["type"]]


json.dump({"version": anthropic.__version__, "seen": seen}, sys.stdout)
