"""A node whose answers the last line of the prompt chooses, in every API form, as an engine would write them."""

import base64
import json
import struct
from collections.abc import Sequence
from typing import Any

from tests.support.raw_node import RawJob

VECTOR = (1.0, 2.0, -0.5)
CALLS = (("weather", '{"city": "Paris"}'), ("clock", '{"zone": "CET"}'))
TEXT = ("Hello ", "from ", "the ", "node.")
USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
IN_OUT = {"input_tokens": 7, "output_tokens": 4}


def asked(request: dict[str, Any]) -> str:
    """The last text of a request, or what its last image is."""
    last: Any = request.get("prompt") or request.get("input")
    if messages := request.get("messages"):
        last = messages[-1]["content"]
    if isinstance(last, list) and isinstance(last[-1], dict) and "content" in last[-1]:
        last = last[-1]["content"]
    if isinstance(last, list):
        part = last[-1] if isinstance(last[-1], dict) else {"text": last[-1]}
        if part.get("type") == "image_url":
            return "image " + part["image_url"]["url"]
        if part.get("type") == "image":
            return f"image data:{part['source']['media_type']};base64,{part['source']['data']}"
        return str(part.get("text", ""))
    return str(last)


async def answer(job: RawJob) -> None:
    """Whatever the prompt asks for."""
    request, path = job.request, str(job.message["path"])
    text = asked(request)
    await job.accept()
    if text == "refuse":
        error = {"message": "prompt is too long", "type": "BadRequestError", "param": "messages", "code": 400}
        await whole(job, {"error": error}, status=400)
    elif text == "busy":
        error = {"message": "overloaded", "type": "x", "param": None, "code": None}
        await whole(job, {"error": error}, status=429, retry_after="17")
    elif text == "hang":
        await job.cancelled.wait()
        await job.end(ok=False, cause="cancelled")
    elif text.startswith("image "):
        kind, _, data = text.removeprefix("image data:").partition(";base64,")
        await FORMS[path](job, [f"{kind}, {len(base64.b64decode(data))} bytes"])
    else:
        await FORMS[path](job, TEXT, tools=text == "call", breaks=text == "break", hangs=text == "talk and hang")


async def whole(job: RawJob, body: dict[str, Any], status: int = 200, **more: Any) -> None:
    await job.head(status, "application/json", **more)
    await job.send(json.dumps(body).encode())
    await job.end()


async def events(
    job: RawJob, first: Sequence[Any], last: Sequence[Any], *, named: bool, breaks: bool, hangs: bool
) -> None:
    """A stream that ends well, breaks off before its end, or falls silent there."""
    await job.head()
    for event in first:
        await send(job, event, named=named)
    if hangs:
        await job.cancelled.wait()
        await job.end(ok=False, cause="cancelled")
        return
    for event in () if breaks else last:
        await send(job, event, named=named)
    await job.end()


async def send(job: RawJob, event: Any, *, named: bool) -> None:
    if isinstance(event, bytes):
        await job.send(event)
    else:
        name = f"event: {event['type']}\n" if named else ""
        await job.send(f"{name}data: {json.dumps(event)}\n\n".encode())


async def chat(
    job: RawJob, text: Sequence[str], *, tools: bool = False, breaks: bool = False, hangs: bool = False
) -> None:
    base = {"id": "chatcmpl-1", "created": 1795990468, "model": job.message["model"]}
    calls = [
        {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(CALLS)
    ]
    finish = "tool_calls" if tools else "stop"
    if not job.request.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": None if tools else "".join(text)}
        if tools:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        await whole(job, {**base, "object": "chat.completion", "choices": [choice], "usage": USAGE})
        return

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**base, "object": "chat.completion.chunk", "choices": [choice]}

    first = [chunk({"role": "assistant", "content": ""})]
    if tools:
        for call in calls:
            arguments = call["function"]["arguments"]
            first.append(
                chunk({"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]})
            )
            first += [
                chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]})
                for piece in _thirds(arguments)
            ]
    else:
        first += [chunk({"content": word}) for word in text]
    last = [chunk({}, finish), {**base, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}]
    await events(job, first, [*last, b"data: [DONE]\n\n"], named=False, breaks=breaks, hangs=hangs)


async def completions(
    job: RawJob, text: Sequence[str], *, breaks: bool = False, hangs: bool = False, **_: bool
) -> None:
    base = {"id": "cmpl-1", "object": "text_completion", "created": 1795990486, "model": job.message["model"]}

    def piece(text: str, finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "text": text, "finish_reason": finish, "logprobs": None}]}

    if not job.request.get("stream"):
        await whole(job, {**piece("".join(text), "stop"), "usage": USAGE})
        return
    last = [piece("", "stop"), {**base, "choices": [], "usage": USAGE}, b"data: [DONE]\n\n"]
    await events(job, [piece(word) for word in text], last, named=False, breaks=breaks, hangs=hangs)


async def embeddings(job: RawJob, _: Sequence[str], **__: bool) -> None:
    packed = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()
    vector = packed if job.request.get("encoding_format") == "base64" else list(VECTOR)
    inputs = job.request["input"]
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index in range(len(inputs) if isinstance(inputs, list) else 1)
    ]
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    await whole(job, {"object": "list", "data": data, "model": job.message["model"], "usage": usage})


async def responses(job: RawJob, text: Sequence[str], *, breaks: bool = False, hangs: bool = False, **_: bool) -> None:
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "".join(text), "annotations": []}],
    }
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1795990467,
        "model": job.message["model"],
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "in_progress",
        "usage": None,
    }
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = {**response, "output": [item], "status": "completed", "usage": {**IN_OUT, **details, "total_tokens": 11}}
    if not job.request.get("stream"):
        await whole(job, done)
        return
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    first: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "content": [], "status": "in_progress"},
        },
        {"type": "response.content_part.added", **place, "part": part},
        *({"type": "response.output_text.delta", **place, "delta": word, "logprobs": []} for word in text),
    ]
    last: list[dict[str, Any]] = [
        {"type": "response.output_text.done", **place, "text": "".join(text), "logprobs": []},
        {"type": "response.content_part.done", **place, "part": {**part, "text": "".join(text)}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    for number, event in enumerate([*first, *last]):
        event["sequence_number"] = number
    await events(job, first, last, named=True, breaks=breaks, hangs=hangs)


async def messages(
    job: RawJob, text: Sequence[str], *, tools: bool = False, breaks: bool = False, hangs: bool = False
) -> None:
    stop = "tool_use" if tools else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": job.message["model"], "stop_sequence": None}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "".join(text)}]
    if tools:
        blocks = [
            {"type": "tool_use", "id": f"call_{index}", "name": name, "input": json.loads(arguments)}
            for index, (name, arguments) in enumerate(CALLS)
        ]
    if not job.request.get("stream"):
        await whole(job, {**head, "content": blocks, "stop_reason": stop, "usage": IN_OUT})
        return
    first: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {**head, "content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 0}},
        },
        {"type": "ping"},
    ]
    for index, block in enumerate(blocks):
        if tools:
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _thirds(CALLS[index][1])]
            start: dict[str, Any] = {**block, "input": {}}
        else:
            deltas = [{"type": "text_delta", "text": word} for word in text]
            start = {"type": "text", "text": ""}
        first.append({"type": "content_block_start", "index": index, "content_block": start})
        first += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        first.append({"type": "content_block_stop", "index": index})
    last: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    await events(job, first, last, named=True, breaks=breaks, hangs=hangs)


async def count_tokens(job: RawJob, _: Sequence[str], **__: bool) -> None:
    await whole(job, {"input_tokens": 7})


def _thirds(text: str) -> list[str]:
    return [text[:5], text[5:9], text[9:]]


FORMS = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/embeddings": embeddings,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/v1/messages/count_tokens": count_tokens,
}
