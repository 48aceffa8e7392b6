"""LangChain against a real engine whose every answer is known: BASE_URL KEY MODEL, JSON on stdout."""

import json
import sys

from langchain_openai import ChatOpenAI

BASE_URL, KEY, MODEL = sys.argv[1:4]
chat = ChatOpenAI(base_url=BASE_URL, api_key=KEY, model=MODEL, max_retries=0, timeout=120, stream_usage=True)
whole = chat.invoke("Speak.")
chunks = list(chat.stream("Speak."))
streamed = chunks[0]
for chunk in chunks[1:]:
    streamed += chunk
json.dump([[each.content, each.usage_metadata["output_tokens"]] for each in (whole, streamed)], sys.stdout)
