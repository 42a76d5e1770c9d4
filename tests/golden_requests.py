"""The requests whose replies tests/golden records: (method, path[, body[, headers]]); a body that is a text is sent as it is."""

USER = [{"role": "user", "content": "Say hello"}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a town", "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "maxLength": 4}}, "required": ["town"]}}}
SHORT = {"max_tokens": 4, "ignore_eos": True}
PRUNED = {"prune": "sliminfer:layers=4/6/8,keep=64/32/16,min=0", "prompt": "one two three " * 60, **SHORT}
CALLED = [*USER, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Ulm"}'}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]

GET = [("GET", path) for path in ("/", "/web/lib/text.js", "/health", "/v1/health", "/models", "/v1/models", "/v1/models/mini", "/v1/models/none",
                                  "/props", "/version", "/docs", "/methods", "/slots", "/metrics", "/tokenizer_info", "/no/such/route")]
TEXTS = [
    ("POST", "/tokenize", {"content": "Hello world"}),
    ("POST", "/tokenize", {"content": "Hello world", "with_pieces": True, "add_special": True}),
    ("POST", "/tokenize", {"content": 5}),
    ("POST", "/detokenize", {"tokens": [1, 2, 3, 70]}),
    ("POST", "/detokenize", {"tokens": [-1]}),
    ("POST", "/apply-template", {"messages": USER}),
    ("POST", "/apply-template", {"messages": "x"}),
    ("POST", "/plan", {"prompt": "one two three " * 60, "prune": "lazyllm:min=0"}),
    ("POST", "/plan", {"messages": USER, "prune": "coppice"}),
    ("POST", "/v1/completions/render", {"prompt": ["Hello", "world"]}),
    ("POST", "/v1/chat/completions/render", {"messages": USER}),
    ("POST", "/v1/chat/completions/input_tokens", {"messages": USER}),
    ("POST", "/v1/embeddings", {"input": "Hello", "encoding_format": "base64", "dimensions": 7}),
    ("POST", "/v1/embeddings", {"input": []}),
]
COMPLETIONS = [
    ("POST", "/v1/completions", {"prompt": "Once", **SHORT}),
    ("POST", "/v1/completions", {"prompt": "Once", **SHORT, "stream": True, "stream_options": {"include_usage": True}}),
    ("POST", "/v1/completions", {"prompt": ["Once", "Twice"], **SHORT, "n": 2, "logprobs": 2, "echo": True}),
    ("POST", "/v1/completions", {"prompt": "Once", **SHORT, "logprobs": 1, "stream": True}),
    ("POST", "/v1/completions", PRUNED),
    ("POST", "/v1/completions", {**PRUNED, "return_prune_depth": True, "return_prompt_pieces": True}),
    ("POST", "/v1/completions", {"prompt": "A: ", "max_tokens": 20, "guided_regex": "[ab]{3}"}),
    ("POST", "/v1/completions", {"prompt": "A: ", "max_tokens": 40, "json_schema": {"enum": ["yes", "no"]}}),
    ("POST", "/v1/completions", {"prompt": "A: ", "max_tokens": 4, "grammar": "root ::= "}),
    ("POST", "/v1/completions", {"prompt": "x " * 3000, "max_tokens": 4}),
    ("POST", "/v1/completions", {"prompt": "Once", "prune": "none such"}),
    ("POST", "/v1/completions", {"prompt": "Once", "prune": "lazyllm:keep=7"}),
    ("POST", "/v1/completions", {"prompt": "Once", "unknown_field": 1, "max_tokens": 1}),
    ("POST", "/v1/completions", {"max_tokens": 1}),
    ("POST", "/v1/completions", "{"),
    ("POST", "/v1/completions", ""),
    ("DELETE", "/v1/completions"),
    ("POST", "/completion", {"prompt": "Once", "n_predict": 3}),
    ("POST", "/completion", {"prompt": "Once", "n_predict": 3, "stream": True, "n_probs": 1}),
    ("POST", "/completion", {"prompt": "Once", "n_predict": "many"}),
]
CHATS = [
    ("POST", "/v1/chat/completions", {"messages": USER, **SHORT}),
    ("POST", "/v1/chat/completions", {"messages": USER, **SHORT, "stream": True, "stream_options": {"include_usage": True}}),
    ("POST", "/v1/chat/completions", {"messages": USER, **SHORT, "logprobs": True, "top_logprobs": 1}),
    ("POST", "/v1/chat/completions", {"messages": USER, "max_tokens": 60, "tools": [WEATHER], "tool_choice": "required"}),
    ("POST", "/v1/chat/completions", {"messages": USER, "max_tokens": 60, "tools": [WEATHER], "tool_choice": "required", "stream": True}),
    ("POST", "/v1/chat/completions", {"messages": CALLED, **SHORT, "tools": [WEATHER]}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]}], **SHORT}),
    ("POST", "/v1/chat/completions", {"messages": USER, "max_tokens": 30, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 1}}}}),
    ("POST", "/v1/chat/completions", {"messages": []}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": 1}]}),
    ("POST", "/v1/chat/completions", {"messages": USER, "tools": [{}]}),
    ("POST", "/v1/chat/completions", {"messages": USER, "tool_choice": "required"}),
]
MESSAGES = [
    ("POST", "/v1/messages", {"messages": USER, "max_tokens": 4}),
    ("POST", "/v1/messages", {"messages": USER, "max_tokens": 4, "stream": True, "system": [{"type": "text", "text": "Be short"}]}),
    ("POST", "/v1/messages", {"messages": USER, "max_tokens": 60, "tool_choice": {"type": "any"}, "tools": [
        {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}]}),
    ("POST", "/v1/messages", {"messages": USER, "max_tokens": 60, "stream": True, "tool_choice": {"type": "any"}, "tools": [
        {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}, {"type": "web_search_20250305", "name": "web_search"}]}),
    ("POST", "/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}], "max_tokens": 2}),
    ("POST", "/v1/messages", {"messages": USER}),
    ("POST", "/v1/messages", {"messages": [{"role": "user", "content": "x " * 3000}], "max_tokens": 4}),
    ("POST", "/v1/messages/count_tokens", {"messages": USER}),
    ("POST", "/v1/messages/count_tokens", {"messages": 1}),
]
RESPONSES = [
    ("POST", "/v1/responses", {"input": "Say hello", "max_output_tokens": 4}),
    ("POST", "/v1/responses", {"input": "Say hello", "max_output_tokens": 4, "stream": True, "instructions": "Be short"}),
    ("POST", "/v1/responses", {"input": "Weather?", "max_output_tokens": 60, "tool_choice": "required", "tools": [
        {"type": "function", **WEATHER["function"]}, {"type": "web_search"}]}),
    ("POST", "/v1/responses", {"input": "Weather?", "max_output_tokens": 60, "stream": True, "tool_choice": "required", "tools": [
        {"type": "function", **WEATHER["function"]}]}),
    ("POST", "/v1/responses", {"input": [{"type": "nothing"}]}),
    ("POST", "/v1/responses", {"input": 5}),
]
SLOTS = [("POST", "/slots/0?action=save", {"filename": "x"}), ("POST", "/slots/0?action=erase", {}), ("POST", "/slots/9?action=no", {})]
ALONE = [*GET, *TEXTS, *COMPLETIONS, *CHATS, *MESSAGES, *RESPONSES, *SLOTS]

KEY = {"Authorization": "Bearer one"}
WITH_KEYS = [*(("GET", path) for path in ("/health", "/v1/models", "/metrics")),
             ("POST", "/v1/chat/completions", {"messages": USER, **SHORT}),
             ("POST", "/v1/messages", {"messages": USER, "max_tokens": 1}),
             ("POST", "/v1/messages", {"messages": USER, "max_tokens": 1}, {"x-api-key": "no", "anthropic-version": "2023-06-01"}),
             ("GET", "/v1/models", None, KEY), ("GET", "/metrics", None, KEY), ("GET", "/slots", None, KEY),
             ("POST", "/v1/completions", {"prompt": "Once", **SHORT}, KEY),
             ("POST", "/v1/completions", {"prompt": "Once", **SHORT}, {"x-api-key": "two"})]
