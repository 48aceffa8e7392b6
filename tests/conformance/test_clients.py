"""The clients that people really use, against a coordinator and a node whose answers are known: each in its own language."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.conformance import scripted
from tests.support.eventually import eventually
from tests.support.npm import npm_folder
from tests.support.served import MODEL, Served
from tests.support.venvs import client_python

CLIENTS = Path(__file__).parent / "clients"
TEXT = "Hello from the node."
BROKE_OFF = "the answer broke off; what was sent stands, nothing else follows"
CALLS = [["weather", {"city": "Paris"}], ["clock", {"zone": "CET"}]]
TOO_LONG = "prompt is too long"
UNKNOWN = "the model brain/mocc is not known here"
NO_NODE = "0 of 1 nodes can serve qwen/qwen3-32b right now"

OPENAI = {
    "models": [MODEL, "brain/auto"],
    "chat": [TEXT, "stop", 11, MODEL, "COMMUNITY"],
    "chat_headers": [True, True],
    "chat_stream": [TEXT, ["stop"], 4, True],
    "chat_stream_without_usage": [False, "stop", True],
    "tools": CALLS,
    "tools_stream": CALLS,
    "image": "image/png, 70 bytes",
    "completions": TEXT,
    "completions_stream": TEXT,
    "embeddings": [[1.0, 2.0, -0.5]] * 2,
    "embeddings_as_floats": [1.0, 2.0, -0.5],
    "responses": [TEXT, "completed", 4],
    "responses_stream": [TEXT, "response.completed", 4],
    "cancelled_stream": "Hello from ",
    "impatient": "APITimeoutError",
    "errors": {
        "bad key": ["AuthenticationError", 401, "invalid_api_key", "the API key is not valid here, or was revoked"],
        "refused by the engine": ["BadRequestError", 400, "400", TOO_LONG, True],
        "refused by the engine, streamed": ["BadRequestError", 400, "400", TOO_LONG, True],
        "no messages": [
            "BadRequestError",
            400,
            "missing_field",
            "`messages` must be a list with at least one message",
            True,
        ],
        "unknown model": ["NotFoundError", 404, "model_not_found", UNKNOWN, True],
        "no node": ["InternalServerError", 503, "no_capacity", NO_NODE, True],
    },
    "error_in_a_stream": [TEXT, "APIError", None, "incomplete", BROKE_OFF],
    "error_in_a_stream_of_responses": [TEXT, "APIError", None, "incomplete", BROKE_OFF],
}

ANTHROPIC = {
    "message": [TEXT, "end_turn", 7, 4, True],
    "stream": [TEXT, "end_turn", 7, 4],
    "raw_stream": ["message_start", "message_stop", True],
    "tools": CALLS,
    "tools_stream": CALLS,
    "image": "image/png, 70 bytes",
    "count_tokens": [7, True],
    "bearer": TEXT,
    "cancelled_stream": "Hello from the ",
    "errors": {
        "bad key": [
            "AuthenticationError",
            401,
            "authentication_error",
            "the API key is not valid here, or was revoked",
            True,
        ],
        "refused by the engine": ["BadRequestError", 400, "invalid_request_error", TOO_LONG, True],
        "refused by the engine, streamed": ["BadRequestError", 400, "invalid_request_error", TOO_LONG, True],
        "unknown model": ["NotFoundError", 404, "not_found_error", UNKNOWN, True],
        "no node": ["ServiceUnavailableError", 503, "overloaded_error", NO_NODE, True],
    },
    "error_in_a_stream": [TEXT, "incomplete", "api_error"],
}

LANGCHAIN = {
    "invoke": [TEXT, 4, "stop"],
    "stream": [TEXT, 4],
    "tools": CALLS,
    "tools_stream": CALLS,
    "image": "image/png, 70 bytes",
    "embeddings": [[1.0, 2.0, -0.5]] * 2,
    "cancelled_stream": "Hello from the ",
    "refused": TOO_LONG,
    "error_in_a_stream": [TEXT, "incomplete"],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("conformance") / "coord", gateway={"queue_s": 0.5}) as running:
        yield running


async def run(served: Served, *command: str | Path, cwd: Path | None = None, cancelled: int) -> dict:
    """What a client program saw; fails unless the node was told of this many jobs that its client gave up."""
    async with served.node(scripted.answer) as node:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            f"{served.url}/v1",
            served.secret,
            MODEL,
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        given_up = [job for job in node.jobs if "hang" in scripted.asked(job.request)]
        assert len(given_up) == cancelled
        for job in given_up:
            await eventually(job.cancelled.is_set)
    return dict(json.loads(out)["seen"])


def check(seen: dict, expected: dict) -> None:
    assert seen.keys() == expected.keys()
    for name, what in expected.items():
        assert shortened(seen[name], what) == what, name


def shortened(seen: object, whole: object) -> object:
    """Long messages cut to the part that is expected."""
    if isinstance(seen, dict) and isinstance(whole, dict):
        return {name: shortened(each, whole.get(name)) for name, each in seen.items()}
    if isinstance(seen, list) and isinstance(whole, list) and len(seen) == len(whole):
        return [shortened(*pair) for pair in zip(seen, whole, strict=True)]
    return whole if isinstance(seen, str) and isinstance(whole, str) and seen.startswith(whole) else seen


async def test_openai_for_python(served):
    seen = await run(served, sys.executable, CLIENTS / "openai_python.py", cancelled=2)
    check(seen, OPENAI)


async def test_openai_for_python_of_an_old_major_version(served):
    python = await asyncio.to_thread(client_python, "openai-1", "openai==1.109.1")
    seen = await run(served, python, CLIENTS / "openai_python.py", cancelled=2)
    check(seen, OPENAI)


@pytest.mark.parametrize("version", ["^7.0.0", "^4.104.0"])
async def test_openai_for_node(served, version):
    folder = await asyncio.to_thread(npm_folder, f"openai-{version[1]}", openai=version)
    script = folder / "checks.mjs"
    script.write_bytes((CLIENTS / "openai_node.mjs").read_bytes())
    seen = await run(served, "node", script, cwd=folder, cancelled=2)
    check(seen, OPENAI)


async def test_langchain(served):
    python = await asyncio.to_thread(client_python, "langchain", "langchain-openai>=1.7,<2")
    seen = await run(served, python, CLIENTS / "langchain_python.py", cancelled=1)
    check(seen, LANGCHAIN)


async def test_anthropic_for_python(served):
    python = await asyncio.to_thread(client_python, "anthropic", "anthropic>=2.14,<3")
    seen = await run(served, python, CLIENTS / "anthropic_python.py", cancelled=1)
    check(seen, ANTHROPIC)
