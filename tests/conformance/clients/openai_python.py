"""What OpenAI's Python client makes of our answers; run in an environment of its own: BASE_URL KEY MODEL, JSON on stdout."""

import json
import sys

import openai

BASE_URL, KEY, MODEL = sys.argv[1:4]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "clock")
]
client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0, timeout=30)
seen = {}


def user(text):
    return [{"role": "user", "content": text}]


def check(function):
    seen[function.__name__] = function()


def told(error):
    """What an application sees of an error."""
    return [
        type(error).__name__,
        getattr(error, "status_code", None),
        error.code and str(error.code),
        error.body["message"],
    ]


@check
def models():
    return [model.id for model in client.models.list()]


@check
def chat():
    answer = client.chat.completions.create(model=MODEL, messages=user("hello"), extra_body={"mode": "COMMUNITY"})
    choice = answer.choices[0]
    brain = answer.model_extra["brain"]
    return [choice.message.content, choice.finish_reason, answer.usage.total_tokens, answer.model, brain["mode"]]


@check
def chat_headers():
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=user("hello"))
    answer = raw.parse()
    return [
        raw.headers["x-request-id"] == answer._request_id == answer.model_extra["brain"]["request_id"],
        raw.headers["x-brain-receipt"] == answer.model_extra["brain"]["receipt"],
    ]


@check
def chat_stream():
    stream = client.chat.completions.create(
        model=MODEL, messages=user("hello"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    finish = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    return [text, finish, chunks[-1].usage.completion_tokens, "receipt" in chunks[-1].model_extra["brain"]]


@check
def chat_stream_without_usage():
    chunks = list(client.chat.completions.create(model=MODEL, messages=user("hello"), stream=True))
    return [
        any(chunk.usage for chunk in chunks),
        chunks[-1].choices[0].finish_reason,
        "brain" in chunks[-1].model_extra,
    ]


@check
def tools():
    answer = client.chat.completions.create(
        model=MODEL, messages=user("call"), tools=TOOLS, tool_choice="auto", parallel_tool_calls=True
    )
    return [[call.function.name, json.loads(call.function.arguments)] for call in answer.choices[0].message.tool_calls]


@check
def tools_stream():
    calls = {}
    for chunk in client.chat.completions.create(model=MODEL, messages=user("call"), tools=TOOLS, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            name, arguments = calls.get(call.index, ("", ""))
            calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    return [[name, json.loads(arguments)] for name, arguments in calls.values()]


@check
def image():
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    return client.chat.completions.create(model=MODEL, messages=user(parts)).choices[0].message.content


@check
def completions():
    return client.completions.create(model=MODEL, prompt="hello").choices[0].text


@check
def completions_stream():
    stream = client.completions.create(model=MODEL, prompt="hello", stream=True)
    return "".join(choice.text for chunk in stream for choice in chunk.choices)


@check
def embeddings():
    answer = client.embeddings.create(model=MODEL, input=["a", "b"])
    return [each.embedding for each in answer.data]


@check
def embeddings_as_floats():
    return client.embeddings.create(model=MODEL, input="a", encoding_format="float").data[0].embedding


@check
def responses():
    answer = client.responses.create(model=MODEL, input="hello")
    return [answer.output_text, answer.status, answer.usage.output_tokens]


@check
def responses_stream():
    events = list(client.responses.create(model=MODEL, input="hello", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    return [text, events[-1].type, events[-1].response.usage.output_tokens]


@check
def cancelled_stream():
    stream = client.chat.completions.create(model=MODEL, messages=user("talk and hang"), stream=True)
    words = []
    for chunk in stream:
        words.append(chunk.choices[0].delta.content or "")
        if len(words) == 3:
            stream.close()
            break
    return "".join(words)


@check
def impatient():
    try:
        client.with_options(timeout=1.0).chat.completions.create(model=MODEL, messages=user("hang"))
    except openai.APITimeoutError as error:
        return type(error).__name__


def failing(**request):
    try:
        client.chat.completions.create(**{"model": MODEL, "messages": user("hello"), **request})
    except openai.APIStatusError as error:
        return [*told(error), error.request_id is not None]


@check
def errors():
    wrong = openai.OpenAI(base_url=BASE_URL, api_key="sk-wrong", max_retries=0)
    try:
        wrong.models.list()
    except openai.AuthenticationError as error:
        bad_key = told(error)
    return {
        "bad key": bad_key,
        "refused by the engine": failing(messages=user("refuse")),
        "refused by the engine, streamed": failing(messages=user("refuse"), stream=True),
        "no messages": failing(messages=[]),
        "unknown model": failing(model="brain/mocc"),
        "no node": failing(model="qwen/qwen3-32b"),
    }


@check
def error_in_a_stream():
    words = []
    try:
        stream = client.chat.completions.create(model=MODEL, messages=user("break"), stream=True)
        words.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    except openai.APIError as error:
        return ["".join(words), *told(error)]


@check
def error_in_a_stream_of_responses():
    words = []
    try:
        stream = client.responses.create(model=MODEL, input="break", stream=True)
        words.extend(event.delta for event in stream if event.type == "response.output_text.delta")
    except openai.APIError as error:
        return ["".join(words), *told(error)]


json.dump({"version": openai.__version__, "seen": seen}, sys.stdout)
