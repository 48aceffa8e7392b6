"""Anthropic's client against a real engine whose every answer is known: BASE_URL KEY MODEL, JSON on stdout."""

import json
import sys

import anthropic

BASE_URL, KEY, MODEL = sys.argv[1:4]
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=KEY, max_retries=0, timeout=120)
ask = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Speak."}]}
whole = client.messages.create(**ask)
with client.messages.stream(**ask) as stream:
    streamed = stream.get_final_message()
try:
    client.messages.create(**{**ask, "max_tokens": 100_000})
    refused = None
except anthropic.BadRequestError as error:
    refused = error.body["error"]["message"]
counted = client.messages.count_tokens(model=MODEL, messages=ask["messages"]).input_tokens
assert counted == whole.usage.input_tokens, (counted, whole.usage)
seen = [[each.content[0].text, each.usage.output_tokens, each.stop_reason] for each in (whole, streamed)]
json.dump([*seen, refused], sys.stdout)
