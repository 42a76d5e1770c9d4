"""Calls of functions in streams, and what else clients read there, through the official openai and anthropic packages. Skips
(77) where they are not installed: tools/setup_clients.sh does that.

    server_calls_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import sys
import tempfile
import unittest

try:
    import anthropic
    import openai
except ImportError as error:
    print(f"skipped: {error}; tools/setup_clients.sh installs the clients")
    sys.exit(77)

from server_case import PROGRAM
from script_model import TEMPLATE as SCRIPT_TEMPLATE, write_script_model
from server_support import Server


class Calls(unittest.TestCase):
    """A model that calls functions, by heart: streams bring the calls as they are written, and clients put them together."""
    ARGUMENTS = '{"path": "notes.txt", "text": "One line.\\nAnd \u00e9 } more."}'
    SCRIPTS = {"A": f'I write it.\n<tool_call>\n{{"name": "write", "arguments": {ARGUMENTS}}}\n</tool_call>',
               "B": '<tool_call>\n{"name": "read", "arguments": {"at": [1, 2, 3], "end": 45678}}\n</tool_call>'}
    TOOLS = {"write": {"path": {"type": "string"}, "text": {"type": "string"}},
             "read": {"at": {"type": "array", "items": {"type": "integer"}}, "end": {"type": "integer"}}}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = f"{cls.folder.name}/m.gguf"
        write_script_model(path, cls.SCRIPTS, template=SCRIPT_TEMPLATE + "{# tools tool_calls <tool_call> #}")
        cls.server = Server(PROGRAM, path).wait_ready()
        base = f"http://{cls.server.host}:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=base + "/v1", api_key="any", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=base, api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def schemas(self):
        for name, properties in self.TOOLS.items():
            yield name, {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def test_chat_completions(self):
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in self.schemas()]
        body = {"model": "m", "messages": [{"role": "user", "content": "A"}], "tools": tools, "temperature": 0}
        whole = self.openai.chat.completions.create(**body)
        (call,) = whole.choices[0].message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("write", self.ARGUMENTS))
        self.assertRegex(whole._request_id, "^req_[0-9a-f]{16}$")
        deltas = [chunk.choices[0].delta for chunk in self.openai.chat.completions.create(**body, stream=True)]
        self.assertEqual((deltas[0].role, deltas[0].content), ("assistant", ""))
        calls = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
        self.assertEqual([(c.function.name, c.type) for c in calls if c.id], [("write", "function")])
        self.assertEqual(calls[0].function.arguments, "")
        self.assertGreater(len(calls), 5, "the arguments come in pieces")
        self.assertEqual("".join(c.function.arguments for c in calls), self.ARGUMENTS)
        with self.openai.chat.completions.stream(**body) as stream:
            pieces = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
            final = stream.get_final_completion().choices[0]
        self.assertEqual(("".join(pieces), final.finish_reason), (self.ARGUMENTS, "tool_calls"))
        self.assertEqual(final.message.tool_calls[0].function.arguments, self.ARGUMENTS)
        self.assertEqual(final.message.content, whole.choices[0].message.content)
        cut = self.openai.chat.completions.create(**body, max_tokens=whole.usage.completion_tokens - 6).choices[0]
        self.assertEqual(cut.finish_reason, "length")
        self.assertTrue(self.ARGUMENTS.startswith(cut.message.tool_calls[0].function.arguments), cut)

    def test_messages(self):
        tools = [{"name": name, "input_schema": schema} for name, schema in self.schemas()]
        system = [{"type": "text", "text": "Words. " * 40, "cache_control": {"type": "ephemeral"}}]
        body = {"model": "m", "system": system, "max_tokens": 500, "messages": [{"role": "user", "content": "A"}], "tools": tools,
                "extra_body": {"temperature": 0}}
        whole = self.anthropic.messages.create(**body)
        self.assertEqual((whole.stop_reason, whole.content[1].name), ("tool_use", "write"))
        self.assertEqual(whole.content[1].input, json.loads(self.ARGUMENTS))
        self.assertRegex(whole._request_id, "^req_[0-9a-f]{16}$")
        usage = whole.usage
        prompt = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        self.assertEqual(usage.input_tokens, 1)
        self.assertGreater(usage.cache_creation_input_tokens, 100)
        self.assertEqual(usage.cache_creation.ephemeral_5m_input_tokens, usage.cache_creation_input_tokens)
        with self.anthropic.messages.stream(**body) as stream:
            events = list(stream)
            final = stream.get_final_message()
            self.assertRegex(stream.request_id, "^req_[0-9a-f]{16}$")
        pieces = [event.partial_json for event in events if event.type == "input_json"]
        self.assertGreater(len(pieces), 5, "the input comes in pieces")
        self.assertEqual("".join(pieces), self.ARGUMENTS)
        self.assertEqual(final.content[1].input, whole.content[1].input)
        self.assertEqual((final.usage.input_tokens, final.usage.cache_read_input_tokens + final.usage.cache_creation_input_tokens),
                         (1, prompt))
        self.assertGreater(final.usage.cache_read_input_tokens, 100)
        started = next(event.message.usage for event in events if event.type == "message_start")
        self.assertEqual(started.cache_read_input_tokens, final.usage.cache_read_input_tokens)
        body["messages"] = [{"role": "user", "content": "B"}]
        with self.anthropic.messages.stream(**body) as stream:
            self.assertEqual(stream.get_final_message().content[0].input, {"at": [1, 2, 3], "end": 45678})
        body["max_tokens"] = final.usage.output_tokens // 2
        with self.anthropic.messages.stream(**{**body, "messages": [{"role": "user", "content": "A"}]}) as stream:
            self.assertEqual(stream.get_final_message().stop_reason, "max_tokens")

    def test_responses(self):
        tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in self.schemas()]
        body = {"model": "m", "input": "A", "tools": tools, "temperature": 0}
        whole = self.openai.responses.create(**body)
        self.assertEqual((whole.output[1].name, whole.output[1].arguments), ("write", self.ARGUMENTS))
        with self.openai.responses.stream(**body) as stream:
            events = list(stream)
            final = stream.get_final_response()
        types = [event.type for event in events]
        self.assertEqual(types[:2], ["response.created", "response.in_progress"])
        pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        self.assertGreater(len(pieces), 5, "the arguments come in pieces")
        self.assertEqual("".join(pieces), self.ARGUMENTS)
        self.assertEqual(types[-3:], ["response.function_call_arguments.done", "response.output_item.done", "response.completed"])
        self.assertEqual(final.output[1].arguments, self.ARGUMENTS)


if __name__ == "__main__":
    unittest.main()
