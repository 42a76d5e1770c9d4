"""Faults that users reported of engines of this kind: the smallest input of each with its right value, and variations.

    server_field_test.py PROGRAM SOURCE_DIR [unittest arguments]

The inputs of the reports lie in ../shared/data/field, beside the checkout; where that is absent only the variations run.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from server_case import PROGRAM, SOURCE
from chat_case import CONTEXT, Case, user
from gguf_edit import edit
from script_model import write_script_model
from server_support import Server

SHARED = SOURCE.parent / "shared"
FIELD = SHARED / "data/field"
GREEDY = {"temperature": 0, "max_tokens": 2}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


def given(number, name="input.json"):
    """A file of the case's folder in the shared data; skips the test where that is not there."""
    path = FIELD / number / name
    if not path.is_file():
        raise unittest.SkipTest(f"{path} is absent")
    return path.read_text() if path.suffix != ".json" else json.loads(path.read_text())


class Parts(Case):
    """A request is not refused whole for a part that can be left out."""

    def read(self, body):
        """The prompt that the model reads of a request in Anthropic's form, by its tokens."""
        return self.server.good("/v1/messages", {**body, **GREEDY})["usage"]["input_tokens"]

    def test_01_system_messages_in_the_middle(self):
        late = [user("Hi"), {"role": "assistant", "content": "Hello."}, {"role": "system", "content": "Available agents: none."}, user("And?")]
        for body in [{"system": "You are terse.", "messages": late}, {"messages": late}, {"messages": late[2:]},
                     {"system": [{"type": "text", "text": "A"}], "messages": [*late, late[2]]}]:
            body = {"max_tokens": 2, **body}
            chat = [{"role": "system", "content": "You are terse." if isinstance(body["system"], str) else "A"}] if "system" in body else []
            text = self.prompt(chat + body["messages"])
            self.assertIn("Available agents: none.", text)
            count = self.server.good("/v1/messages/count_tokens", body)["input_tokens"]
            self.assertEqual(count, len(self.server.good("/tokenize", {"prompt": text})["tokens"]))
            self.assertEqual(self.server.good("/v1/messages", {**body, "temperature": 0})["type"], "message")
        self.server.good("/v1/messages", given("01"))

    def test_deferred_tools_are_defined_where_they_are_found(self):
        """What stands before the result stays as it was, so that no earlier turn is read again."""
        search, placeholder = {"name": "ToolSearch", "input_schema": {"type": "object"}}, {"name": "Reserved", "defer_loading": True, "input_schema": {}}
        found = {"name": "WebFetch", "description": "fetches", "defer_loading": True, "input_schema": {"type": "object", "properties": {"u": {"type": "string"}}}}
        asked = [user("Long. " * 300), {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ToolSearch", "input": {}}]}]
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": "WebFetch"}]}]}
        first = self.server.good("/v1/messages", {"messages": asked[:1], "tools": [search, placeholder], **GREEDY})
        whole = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
        self.assertEqual(whole, self.read({"messages": asked[:1], "tools": [search], "cache_prompt": False}))  # a tool that nobody named is unknown
        reply = self.server.good("/v1/messages", {"messages": [*asked, result], "tools": [search, found, placeholder], **GREEDY})
        self.assertGreater(reply["usage"]["cache_read_input_tokens"], whole - 8)
        self.assertNotIn("tool_reference", reply.get("ignored_parameters", []))
        # Where nothing of the client's could search, the tool is known from the beginning.
        server_search = {"type": "tool_search_tool_regex_20251119", "name": "search"}
        known = {"messages": asked[:1], "cache_prompt": False}
        self.assertGreater(self.read({**known, "tools": [server_search, found]}), self.read({**known, "tools": [server_search]}))

    def test_01_blocks_without_an_effect(self):
        source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        for block in [{"type": "image", "source": source}, {"type": "document", "source": {**source, "media_type": "application/pdf"}},
                      {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "told"}},
                      {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "told"}]},
                      {"type": "tool_reference", "tool_name": "f"}, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
                      {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "title": "t", "url": "u"}]},
                      {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "block_of_tomorrow", "x": 1}]:
            plain = {"role": "user", "content": [{"type": "text", "text": "q"}, block]}
            inner = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [block]}]}
            call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
            for messages in ([plain], [user(), call, inner]):
                reply = self.server.good("/v1/messages", {"messages": messages, **GREEDY})
                if "told" not in json.dumps(block):
                    self.assertIn(block["type"], reply["ignored_parameters"], block)
        tools = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}, {"name": "f", "input_schema": {"type": "object"}}]
        reply = self.server.good("/v1/messages", {"messages": [user()], "tools": tools, **GREEDY})
        self.assertEqual(reply["ignored_parameters"], ["web_search_20250305", "bash_20250124"])
        counted = self.server.good("/v1/messages/count_tokens", {"messages": [user()], "tools": tools})
        self.assertEqual(counted["ignored_parameters"], ["web_search_20250305", "bash_20250124"])

    def test_04_what_codex_sends(self):
        other = [{"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}, {"type": "local_shell"}, {"type": "web_search"}, {"type": "tool_of_tomorrow"}]
        reply = self.server.good("/v1/responses", {"input": "hi", "tools": other, "temperature": 0, "max_output_tokens": 2})
        self.assertEqual(reply["tools"], [])
        self.assertEqual(set(reply["ignored_parameters"]), {tool["type"] for tool in other})
        items = [user("hi"), {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
                 {"type": "local_shell_call", "call_id": "s", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
                 {"type": "local_shell_call_output", "call_id": "s", "output": "file.txt"}, {"type": "item_reference", "id": "x"},
                 {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]}, user("go on")]
        reply = self.server.good("/v1/responses", {"input": items, "temperature": 0, "max_output_tokens": 2})
        self.assertLessEqual({"reasoning", "item_reference", "local_shell_call"}, set(reply["ignored_parameters"]))
        for wrong in ([3], ["hi", {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], [{"type": "function_call", "call_id": "c"}]):
            self.assertIn("input", self.refused("/v1/responses", {"input": wrong})["message"])
        for name in ("input.json", "history.json"):
            reply = self.server.good("/v1/responses", given("04", name))
            self.assertIn("web_search" if name == "input.json" else "web_search_call", reply["ignored_parameters"])
        self.refused("/v1/responses", given("04", "string_item.json"))

    def test_chats_of_openais_form(self):
        for message in [{"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]},
                        {"role": "assistant", "content": None, "refusal": "I will not"}, user(["plain", {"type": "text", "text": "text"}]),
                        user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])]:
            text = self.prompt([user("a"), message, user("b")])
            self.assertTrue(any(part in text for part in ("I will not", "plain\ntext", "left out")), text)
        reply = self.server.good("/apply-template", {"messages": [user([{"type": "image_url", "image_url": {"url": "u"}}])]})
        self.assertEqual(reply["ignored_parameters"], ["image_url"])


class Heads(Case):
    """A text at the prompt's head that changes with every request is no reason to read all again."""

    def reused(self, first, second, path="/v1/messages"):
        self.server.good(path, first)
        usage = self.server.good(path, second)["usage"]
        cached = usage.get("cache_read_input_tokens", usage.get("prompt_tokens_details", {}).get("cached_tokens", 0))
        prompt = usage["input_tokens"] + cached if "input_tokens" in usage else usage["prompt_tokens"]
        self.assertGreater(cached, 0.9 * prompt, usage)

    def test_02_the_billing_header(self):
        def body(salt, number):
            header = f"x-anthropic-billing-header: cc_version=2.1.{number}; cc_entrypoint=cli; cch={number:05x};"
            return {"max_tokens": 1, "temperature": 0, "system": [{"type": "text", "text": header}, {"type": "text", "text": salt + " You help with code." * 60}],
                    "messages": [user()]}

        self.reused(body("a", 0xaaaaa), body("a", 0xbbbbb))
        chats = [{"max_tokens": 1, "temperature": 0, "messages": [{"role": "system", "content": "\n".join(b["text"] for b in one["system"])}, user()]}
                 for one in (body("b", 1), body("b", 2))]
        self.reused(*chats, path="/v1/chat/completions")
        plain = [{**one, "system": "\n".join(b["text"] for b in one["system"])} for one in (body("c", 1), body("c", 2))]
        self.reused(*plain)
        counts = {self.server.good("/v1/messages/count_tokens", body("a", number))["input_tokens"] for number in (7, 0xfffff)}
        self.assertEqual(len(counts), 1)
        self.reused(given("02", "turn1.json"), given("02", "turn2.json"))

    def test_counters_and_clocks(self):
        for first, second in [("<total_tokens>100 tokens left</total_tokens>", "<total_tokens>99 tokens left</total_tokens>"),
                              ("Current date and time: 2026-11-27 10:00:01", "Current date and time: 2026-11-27 10:02:59")]:
            chats = [{"max_tokens": 1, "temperature": 0, "messages": [{"role": "system", "content": f"{line}\n" + first[:9] + " Be brief." * 90}, user()]}
                     for line in (first, second)]
            self.reused(*chats, path="/v1/chat/completions")


class Calls(Case):
    """A call in another form than the template's. The model says by heart what the last letter of the message names."""

    SCRIPTS = {"A": CALL, "B": f"```json\n{CALL}\n```", "C": f"<tools>\n{CALL}\n</tools>", "D": f"<function_call>{CALL}</function_call>",
               "E": '{"name": "get_weather", "parameters": {"city": "Ulm"}}', "F": '{"name": "other", "arguments": {"a": 1}}',
               "G": f"I would say {CALL}", "H": '{"name": "get_weather", "arguments": [1]}', "I": "It is sunny."}

    @classmethod
    def write(cls, model):
        write_script_model(model, cls.SCRIPTS, template="{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
                           "{% if add_generation_prompt %}<assistant>{{ messages[-1].content[-1] }}{% endif %}")

    def test_03_calls_as_objects_in_fences_and_tags(self):
        tools = given("03")["tools"] if (FIELD / "03").is_dir() else [WEATHER]
        for letter, said in self.SCRIPTS.items():
            body = {"messages": [user(f"What is the weather? {letter}")], "temperature": 0, "max_tokens": 80}
            self.assertEqual(self.server.good("/v1/chat/completions", body)["choices"][0]["message"]["content"], said)
            choice = self.server.good("/v1/chat/completions", {**body, "tools": tools})["choices"][0]
            chunks = [chunk["choices"][0] for chunk in self.server.stream("/v1/chat/completions", {**body, "tools": tools})[:-1]]
            streamed = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
            anthropic = self.server.good("/v1/messages", {**body, "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}]})
            if letter not in "ABCDE":
                self.assertEqual((choice["message"]["content"], choice["finish_reason"], streamed), (said, "stop", said))
                self.assertEqual((anthropic["content"][0]["text"], anthropic["stop_reason"]), (said, "end_turn"))
                continue
            arguments = {"city": "Ulm" if letter == "E" else "Paris"}
            (call,) = choice["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("get_weather", arguments))
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (None, "tool_calls"))
            self.assertEqual((streamed, chunks[-1]["finish_reason"]), ("", "tool_calls"))
            (block,) = anthropic["content"]
            self.assertEqual((block["type"], block["input"], anthropic["stop_reason"]), ("tool_use", arguments, "tool_use"))

    def test_functions_of_namespaces_come_back_with_them(self):
        def body(*names, **more):
            spaces = [{"type": "namespace", "name": name, "tools": [{"type": "function", **WEATHER["function"]}]} for name in names]
            return {"input": "What? A", "temperature": 0, "max_output_tokens": 80, "tools": spaces, **more}

        reply = self.server.good("/v1/responses", body("mcp__x__"))
        self.assertEqual([(o["type"], o["name"], o["namespace"]) for o in reply["output"]], [("function_call", "get_weather", "mcp__x__")])
        status, _, events = self.server.ask("/v1/responses", {**body("mcp__x__"), "stream": True})
        self.assertEqual(events.count('"namespace":"mcp__x__"'), 3, events)  # added, done, and the whole
        # Of two functions with one name the first keeps it; a call in the history has the same name as its function.
        history = [user("q"), {"type": "function_call", "call_id": "c", "name": "get_weather", "namespace": "b", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "c", "output": "o"}, user("What? A")]
        reply = self.server.good("/v1/responses", body("a", "b", input=history))
        self.assertEqual([(o["name"], o["namespace"]) for o in reply["output"]], [("get_weather", "a")])
        self.assertEqual([tool["name"] for tool in reply["tools"]], ["get_weather", "b__get_weather"])
        top = {"type": "function", **WEATHER["function"]}
        reply = self.server.good("/v1/responses", {**body("a"), "tools": [*body("a")["tools"], top]})
        self.assertEqual([(o["name"], o.get("namespace")) for o in reply["output"]], [("get_weather", None)])

    def test_06_where_the_template_trims(self):
        for text in ("```json\n", "x = ", " y\t\n"):
            prompt = self.prompt([user("q"), {"role": "assistant", "content": text}], continue_final_message=True)
            self.assertTrue(prompt.endswith("<assistant>" + text.strip()), repr(prompt))


class Rendered(Case):
    """The template gets all that was sent."""

    def test_06_white_space_at_the_end_of_what_is_continued(self):
        bodies = [given("06")] if (FIELD / "06").is_dir() else []
        bodies += [{"messages": [user("q"), {"role": "assistant", "content": text}], "continue_final_message": True} for text in ("x = ", "a\n\n", "\t", "def f():\n    ")]
        for body in bodies:
            prompt = self.server.good("/apply-template", body)["prompt"]
            self.assertTrue(prompt.endswith("[assistant] " + body["messages"][-1]["content"]), repr(prompt))

    def test_09_arguments(self):
        for sent, written in [("", "{}"), (None, "{}"), ({}, "{}"), ("{}", "{}"), ({"b": 1, "a": 2}, '{"b": 1, "a": 2}'), ('{"b": 1, "a": 2}', '{"b": 1, "a": 2}'),
                              (" ", "{}"), ({"z": {"y": 1, "x": [None]}}, '{"z": {"y": 1, "x": [null]}}')]:
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": sent}}
            messages = [user("q"), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "r"}]
            self.assertIn(f"<call>f {written}</call>", self.prompt(messages), sent)
        for name in ("empty.json", "null.json"):
            self.assertIn("<call>f {}</call>", self.server.good("/apply-template", given("09", name))["prompt"])

    def test_07_the_template_for_tools_of_a_gguf_file(self):
        with tempfile.TemporaryDirectory() as folder:
            write_script_model(f"{folder}/m.gguf", {"A": "yes"}, "DEFAULT:{{ messages[0].content }}", "TOOLUSE:{{ tools | tojson }}{{ messages[0].content }}{# tool_calls #}")
            server = Server(PROGRAM, f"{folder}/m.gguf").wait_ready()
            try:
                for tools, right in [({}, "DEFAULT:q"), ({"tools": []}, "DEFAULT:q"), ({"tools": [WEATHER]}, "TOOLUSE:[")]:
                    prompt = server.good("/apply-template", {"messages": [user("q")], **tools})["prompt"]
                    self.assertTrue(prompt.startswith(right) and prompt.endswith("q"), prompt)
            finally:
                server.stop()

    def test_07_the_template_for_tools_of_a_folder(self):
        source = SHARED / "models/TinyStories-656K"
        if not source.is_dir():
            self.skipTest(f"{source} is absent")
        loop = "{% for m in messages %}{{ m.content }}{% endfor %}"
        default, tool_use = "DEFAULT:" + loop, "TOOLUSE:{{ tools | tojson }}" + loop + "{# tool_calls #}"
        for form in ("old", "new"):
            with tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(shutil.copytree(source, f"{parent}/m"))
                config = json.loads((folder / "tokenizer_config.json").read_text())
                if form == "old":
                    config["chat_template"] = [{"name": "default", "template": default}, {"name": "tool_use", "template": tool_use}]
                else:
                    (folder / "chat_template.jinja").write_text(default)
                    (folder / "additional_chat_templates").mkdir()
                    (folder / "additional_chat_templates/tool_use.jinja").write_text(tool_use)
                (folder / "tokenizer_config.json").write_text(json.dumps(config))
                server = Server(PROGRAM, folder).wait_ready()
                try:
                    self.assertEqual(server.good("/apply-template", {"messages": [user("q")]})["prompt"], "DEFAULT:q")
                    prompt = server.good("/apply-template", {"messages": [user("q")], "tools": [WEATHER]})["prompt"]
                    self.assertTrue(prompt.startswith('TOOLUSE:[{"type": "function"') and prompt.endswith("]q"), prompt)
                finally:
                    server.stop()


class Members(Case):
    template = ("{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content is defined and m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
                "{% endif %}{{ m.content }}{{ m.mood }}{% endfor %}<|assistant|>")

    def test_14_every_member_of_a_message(self):
        messages = [user("q"), {"role": "assistant", "content": "a", "reasoning_content": "because"}, user("q2")]
        right = "<|user|>q<|assistant|><think>because</think>a<|user|>q2<|assistant|>"
        self.assertEqual(self.prompt(messages), right)
        self.assertEqual(self.prompt([{**user("q"), "mood": "!"}]), "<|user|>q!<|assistant|>")
        self.assertEqual(self.prompt([{**user("q"), "mood": 3}]), "<|user|>q3<|assistant|>")
        self.assertEqual(self.prompt([{**user("q"), "reasoning_content": ""}]), "<|user|>q<|assistant|>")
        self.assertEqual(self.server.good("/apply-template", given("14"))["prompt"], right)


class Strict(Case):
    """A template that takes one system message, at the beginning, and only turns."""

    template = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
                "{% if not loop.first and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('Roles must alternate.') }}{% endif %}"
                "<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>")

    def test_18_messages_that_the_template_refuses_are_joined(self):
        system = {"role": "system", "content": "S2"}
        said = {"role": "assistant", "content": "a"}
        for messages in [[{"role": "system", "content": "S"}, user("q"), said, system, user("q2")], [user("q"), said, system, user("q2")],
                         [user("q"), system], [system, {"role": "developer", "content": "D"}, user("q")]]:
            prompt = self.prompt(messages)
            self.assertEqual(prompt.count("<|system|>"), 1, prompt)
            self.assertIn("S2", prompt)
            self.assertEqual(self.server.good("/v1/chat/completions", {"messages": messages, **GREEDY})["object"], "chat.completion")
        body = {"max_output_tokens": 2, "temperature": 0, "instructions": "S", "input": [{"role": "developer", "content": "S2"}, user("q")]}
        self.server.good("/v1/responses", body)
        self.server.good("/v1/messages", {"system": "S", "messages": [user("q"), said, system, user("q2")], **GREEDY})
        self.server.good("/v1/chat/completions", given("18"))
        self.server.good("/v1/responses", given("18", "responses.json"))

    def test_tools_as_text_keep_the_turns(self):
        call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        results = [{"role": "tool", "tool_call_id": "c", "content": text} for text in ("r1", "r2")]
        for messages in [[user("q")], [{"role": "system", "content": "S"}, user("q")], [user("q"), {"role": "assistant", "content": None, "tool_calls": [call]}, results[0]],
                         [user("q"), {"role": "assistant", "content": None, "tool_calls": [call, call | {"id": "d"}]}, *results, user("q2")]]:
            prompt = self.prompt(messages, tools=[WEATHER])
            self.assertIn("get_weather", prompt)
            for message in messages:
                self.assertIn(message["content"] or "get_weather", prompt)


class Files(unittest.TestCase):
    """Files that leave out what most have."""

    def test_11_a_missing_pre_tokenizer_is_told(self):
        source = SHARED / "data/tokenizer/ggml-vocab-qwen2.gguf"
        if not source.is_file():
            self.skipTest(f"{source} is absent")
        with tempfile.TemporaryDirectory() as folder:
            for name, change, ids, says in [("whole", {}, [40, 27603, 220, 16], ""), ("missing", {"drop": ["tokenizer.ggml.pre"]}, [40, 6, 44, 220, 16], "tokenizer.ggml.pre"),
                                            ("default", {"texts": {"tokenizer.ggml.pre": "default"}}, [40, 6, 44, 220, 16], None),
                                            ("unknown", {"texts": {"tokenizer.ggml.pre": "of-tomorrow"}}, [40, 6, 44, 220, 16], "of-tomorrow")]:
                path = f"{folder}/{name}.gguf"
                edit(source, path, **change)
                done = subprocess.run([PROGRAM, "tokenize", "-m", path, "--ids", "-p", "I'M 12345"], capture_output=True, text=True, check=False)
                if says == "":
                    self.assertEqual(done.stderr, "")
                elif says:
                    self.assertIn(says, done.stderr)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)[:len(ids)], ids, name)


class Fields(Case):
    """Fields that clients read, values that others take as off, limits that others lack."""

    def test_13_the_servers_context(self):
        for path in ("/v1/models", "/models"):
            model = self.server.good(path)["data"][0]
            self.assertEqual((model["meta"]["n_ctx"], model["context_length"], model["max_model_len"]), (CONTEXT,) * 3)
        model = self.server.good(f"/v1/models/{model['id']}")
        self.assertEqual((model["meta"]["n_ctx"], model["context_length"]), (CONTEXT, CONTEXT))
        self.assertEqual(self.server.good("/props")["default_generation_settings"]["n_ctx"], CONTEXT)

    def answer(self, **fields):
        return self.server.good("/v1/completions", {"prompt": "Once", "max_tokens": 8, "seed": 3, "temperature": 1.2, **fields})["choices"][0]["text"]

    def test_16_values_that_others_take_as_off(self):
        self.assertEqual(self.answer(top_k=-1, top_p=1, min_p=0), self.answer(top_k=0, top_p=1, min_p=0))
        self.assertEqual(self.answer(top_p=0), self.answer(top_k=1))
        self.assertEqual(self.answer(repeat_penalty=0), self.answer())
        self.assertEqual(self.answer(typical_p=1, xtc_probability=0, xtc_threshold=7, dry_base=0, dry_allowed_length=0, dry_sequence_breakers=[], n_keep=-1,
                                     t_max_predict_ms=-1, stream_options={"include_usage": True}, top_n_sigma=-1, mirostat=0, best_of=1, functions=[],
                                     samplers=["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]), self.answer())

    def test_17_many_stop_texts(self):
        names = [f"\nName{i}:" for i in range(1024)]
        for count in (65, 200, 1024):
            self.assertEqual(self.answer(stop=names[:count]), self.answer())
        self.assertIn("1024", self.refused("/v1/completions", {"prompt": "x", "stop": [*names, "one more"]})["message"])
        text = self.answer()
        self.assertEqual(self.answer(stop=[*names[:1000], text[3:6]]), text[:text.index(text[3:6])])


if __name__ == "__main__":
    unittest.main()
