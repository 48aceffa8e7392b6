"""What LangChain's ChatOpenAI makes of our answers; run in an environment of its own: BASE_URL KEY MODEL, JSON on stdout."""

import json
import sys

import langchain_openai
import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

BASE_URL, KEY, MODEL = sys.argv[1:4]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
chat = ChatOpenAI(base_url=BASE_URL, api_key=KEY, model=MODEL, max_retries=0, timeout=30, stream_usage=True)
seen = {}


def weather(city: str) -> str:
    """The weather in a city."""
    return city


def clock(zone: str) -> str:
    """The time in a zone."""
    return zone


answer = chat.invoke("hello")
seen["invoke"] = [answer.content, answer.usage_metadata["output_tokens"], answer.response_metadata["finish_reason"]]

chunks = list(chat.stream("hello"))
whole = chunks[0]
for chunk in chunks[1:]:
    whole += chunk
seen["stream"] = [whole.content, whole.usage_metadata["output_tokens"]]

calling = chat.bind_tools([weather, clock])
seen["tools"] = [[call["name"], call["args"]] for call in calling.invoke("call").tool_calls]
chunks = list(calling.stream("call"))
whole = chunks[0]
for chunk in chunks[1:]:
    whole += chunk
seen["tools_stream"] = [[call["name"], call["args"]] for call in whole.tool_calls]

parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
seen["image"] = chat.invoke([("user", parts)]).content

embeddings = OpenAIEmbeddings(
    base_url=BASE_URL, api_key=KEY, model=MODEL, max_retries=0, check_embedding_ctx_length=False
)
seen["embeddings"] = embeddings.embed_documents(["a", "b"])

stream, words = chat.stream("talk and hang"), []
for chunk in stream:
    words.append(chunk.content)
    if "the " in words:
        stream.close()
        break
seen["cancelled_stream"] = "".join(words)

try:
    chat.invoke("refuse")
except openai.BadRequestError as error:
    seen["refused"] = error.body["message"]
words = []
try:
    for chunk in chat.stream("break"):
        words.append(chunk.content)
except openai.APIError as error:
    seen["error_in_a_stream"] = ["".join(words), error.body["code"]]

json.dump({"version": getattr(langchain_openai, "__version__", "?"), "seen": seen}, sys.stdout)
