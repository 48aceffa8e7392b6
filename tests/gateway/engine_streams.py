"""Streams as a real engine wrote them (vLLM 0.32.0, a model whose every answer is known), in every API form."""

CHAT = (
    b'data: {"id":"chatcmpl-be7e31f5e7523d40","object":"chat.completion.chunk","created":1795990468,"model":"known",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    b'"prompt_token_ids":null,"prompt_text":null}\n\n',
    b'data: {"id":"chatcmpl-be7e31f5e7523d40","object":"chat.completion.chunk","created":1795990468,"model":"known",'
    b'"choices":[{"index":0,"delta":{"content":"Every"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n',
    b'data: {"id":"chatcmpl-be7e31f5e7523d40","object":"chat.completion.chunk","created":1795990468,"model":"known",'
    b'"choices":[{"index":0,"delta":{"content":" answer"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n',
    b'data: {"id":"chatcmpl-be7e31f5e7523d40","object":"chat.completion.chunk","created":1795990468,"model":"known",'
    b'"choices":[{"index":0,"delta":{"content":" of"},"logprobs":null,"finish_reason":"length","stop_reason":null,'
    b'"token_ids":null}]}\n\n',
    b'data: {"id":"chatcmpl-be7e31f5e7523d40","object":"chat.completion.chunk","created":1795990468,"model":"known",'
    b'"choices":[],"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3},'
    b'"system_fingerprint":"vllm-0.32.0-9c1dcc39"}\n\n',
    b"data: [DONE]\n\n",
)

COMPLETIONS = (
    b'data: {"id":"cmpl-abea5b20376732ad","object":"text_completion","created":1795990486,"model":"known",'
    b'"choices":[{"index":0,"text":"Every","logprobs":null,"finish_reason":null,"stop_reason":null,'
    b'"prompt_token_ids":null,"token_ids":null}]}\n\n',
    b'data: {"id":"cmpl-abea5b20376732ad","object":"text_completion","created":1795990486,"model":"known",'
    b'"choices":[{"index":0,"text":" answer","logprobs":null,"finish_reason":null,"stop_reason":null,'
    b'"prompt_token_ids":null,"token_ids":null}]}\n\n',
    b'data: {"id":"cmpl-abea5b20376732ad","object":"text_completion","created":1795990486,"model":"known",'
    b'"choices":[{"index":0,"text":" of","logprobs":null,"finish_reason":"length","stop_reason":null,'
    b'"prompt_token_ids":null,"token_ids":null}]}\n\n',
    b'data: {"id":"cmpl-abea5b20376732ad","object":"text_completion","created":1795990486,"model":"known",'
    b'"choices":[],"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3},'
    b'"system_fingerprint":"vllm-0.32.0-9c1dcc39"}\n\n',
    b"data: [DONE]\n\n",
)

_RESPONSE = (
    b'"id":"resp_976589e201a9846f","created_at":1795990467,"instructions":null,"metadata":null,"model":"known",'
    b'"object":"response"'
)
RESPONSES = (
    b'event: response.created\ndata: {"response":{' + _RESPONSE + b',"output":[],"status":"in_progress","usage":null},'
    b'"sequence_number":0,"type":"response.created"}\n\n',
    b'event: response.in_progress\ndata: {"response":{' + _RESPONSE + b',"output":[],"status":"in_progress",'
    b'"usage":null},"sequence_number":1,"type":"response.in_progress"}\n\n',
    b'event: response.output_item.added\ndata: {"item":{"id":"msg_a32263409c3035e3","content":[],"role":"assistant",'
    b'"status":"in_progress","type":"message","phase":null},"output_index":0,"sequence_number":2,'
    b'"type":"response.output_item.added"}\n\n',
    b'event: response.content_part.added\ndata: {"content_index":0,"item_id":"msg_a32263409c3035e3","output_index":0,'
    b'"part":{"annotations":[],"text":"","type":"output_text","logprobs":[]},"sequence_number":3,'
    b'"type":"response.content_part.added"}\n\n',
    b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"Every","item_id":"msg_a32263409c3035e3",'
    b'"logprobs":[],"output_index":0,"sequence_number":4,"type":"response.output_text.delta"}\n\n',
    b'event: response.output_text.delta\ndata: {"content_index":0,"delta":" answer of",'
    b'"item_id":"msg_a32263409c3035e3","logprobs":[],"output_index":0,"sequence_number":5,'
    b'"type":"response.output_text.delta"}\n\n',
    b'event: response.output_text.done\ndata: {"content_index":0,"item_id":"msg_a32263409c3035e3","logprobs":[],'
    b'"output_index":0,"sequence_number":6,"text":"Every answer of","type":"response.output_text.done"}\n\n',
    b'event: response.content_part.done\ndata: {"content_index":0,"item_id":"msg_a32263409c3035e3","output_index":0,'
    b'"part":{"annotations":[],"text":"Every answer of","type":"output_text","logprobs":null},"sequence_number":7,'
    b'"type":"response.content_part.done"}\n\n',
    b'event: response.output_item.done\ndata: {"item":{"id":"msg_a32263409c3035e3","content":[{"annotations":[],'
    b'"text":"Every answer of","type":"output_text","logprobs":null}],"role":"assistant","status":"completed",'
    b'"type":"message","phase":null},"output_index":0,"sequence_number":8,"type":"response.output_item.done"}\n\n',
    b'event: response.completed\ndata: {"response":{' + _RESPONSE + b',"incomplete_details":'
    b'{"reason":"max_output_tokens"},"output":[{"id":"msg_a32263409c3035e3","content":[{"annotations":[],'
    b'"text":"Every answer of","type":"output_text","logprobs":null}],"role":"assistant","status":"completed",'
    b'"type":"message","phase":null}],"status":"incomplete","usage":{"input_tokens":3,"output_tokens":3,'
    b'"total_tokens":6}},"sequence_number":9,"type":"response.completed"}\n\n',
)

MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"chatcmpl-bc17d7d37b8fc5f2","type":"message",'
    b'"role":"assistant","content":[],"model":"known","stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":3,"output_tokens":0}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","content_block":{"type":"text","text":""},'
    b'"index":0}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Every"},'
    b'"index":0}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta",'
    b'"text":" answer of"},"index":0}\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},'
    b'"usage":{"input_tokens":3,"output_tokens":3}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
)

WHOLE = {
    "/v1/chat/completions": b'{"id":"chatcmpl-1","object":"chat.completion","created":1795990468,"model":"known",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"Every answer of"},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3}}',
    "/v1/completions": b'{"id":"cmpl-1","object":"text_completion","created":1795990486,"model":"known","choices":'
    b'[{"index":0,"text":"Every answer of","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3}}',
    "/v1/responses": b'{"id":"resp_aa4d9661882afd5b","created_at":1795990468,"model":"known","object":"response",'
    b'"output":[{"id":"msg_83f3f98baf56b9b3","content":[{"annotations":[],"text":"Every answer of",'
    b'"type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message"}],'
    b'"parallel_tool_calls":true,"tool_choice":"none","tools":[],"status":"incomplete",'
    b'"usage":{"input_tokens":3,"output_tokens":3,"total_tokens":6}}',
    "/v1/messages": b'{"id":"chatcmpl-b3aa522abfb25489","type":"message","role":"assistant","content":'
    b'[{"type":"text","text":"Every answer of"}],"model":"known","stop_reason":"max_tokens",'
    b'"usage":{"input_tokens":3,"output_tokens":3}}',
    "/v1/embeddings": b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="}],'
    b'"model":"known","usage":{"prompt_tokens":2,"total_tokens":2}}',
}

STREAMS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
REQUESTS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3},
    "/v1/embeddings": {"input": "hello"},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "hello"}]},
}
