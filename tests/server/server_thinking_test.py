"""What a model thinks, in every form of reply: whole and streamed, with budgets, stops, tools and forms, and in the history.

    server_thinking_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

from server_case import PROGRAM
from chat_case import user
from script_model import write_script_model
from server_support import Server

# Qwen3's way: earlier thinking stays behind the user's last words, and can be turned off.
TEMPLATE = r"""{%- set ns = namespace(last=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
{%- if tools %}tools: {{ tools | tojson }}
{% endif -%}
{%- for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last -%}
{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor %}
{% endfor -%}
{%- if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% else -%}
{{ messages[-1].content[-1] }}{% endif %}{% endif %}"""
SCRIPTS = {
    "A": "<think>\nLet me see: 2 and 2.\n</think>\n\nFour, I say.",
    "B": " Plain words, no mark.",
    "C": "<think>never ending words, without any end to them",
    "D": "<think>\nIs <tool_call>{\"name\": \"f\"} one?\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
    "E": "<think>a STOP here</think>before STOP after",
    "J": "<think>{}? or [1]\n</think>{\"a\": \"yy\"}",
    "\n": "At last: Done.",
}
# The prompt ends within the thinking, as DeepSeek-R1's; a letter in front of the mark chooses nothing.
OPEN = r"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{{ '<think>\n' }}{# '</think>\n\n' #}"
CHANNELS = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ reasoning_effort }}{# <|start|>assistant<|channel|>final<|message|> medium #}"
            "<assistant>{{ messages[-1].content[-1] }}")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
GREEDY = {"temperature": 0}
THOUGHT = "Let me see: 2 and 2."


class Thinking(unittest.TestCase):
    template = TEMPLATE
    scripts = SCRIPTS
    control = ()
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name) / "m.gguf"
        write_script_model(cls.model, cls.scripts, template=cls.template, words=[" "], control=cls.control)
        cls.server = Server(PROGRAM, cls.model, *cls.options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def chat(self, letter="A", **fields):
        reply = self.server.good("/v1/chat/completions", {"messages": [user(letter)], **GREEDY, **fields})
        message = reply["choices"][0]["message"]
        self.assertEqual(message.pop("reasoning", None), message.get("reasoning_content"), "one text under two names")
        return message, reply

    def prompt(self, messages, **fields):
        return self.server.good("/apply-template", {"messages": messages, **fields})["prompt"]

    def chunks(self, letter="A", **fields):
        events = self.server.stream("/v1/chat/completions", {"messages": [user(letter)], **GREEDY, **fields})
        choices = [event["choices"][0] for event in events if event not in (":", "[DONE]") and event["choices"]]
        for choice in choices:
            self.assertEqual(choice["delta"].get("reasoning"), choice["delta"].get("reasoning_content"))
        return choices

    def events(self, path, body):
        _, _, text = self.server.ask(path, {**GREEDY, **body, "stream": True})
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


class Chat(Thinking):
    def test_whole(self):
        message, reply = self.chat("A")
        self.assertEqual(message, {"role": "assistant", "content": "Four, I say.", "reasoning_content": THOUGHT})
        usage = reply["usage"]
        self.assertLess(0, usage["completion_tokens_details"]["reasoning_tokens"])
        self.assertLess(usage["completion_tokens_details"]["reasoning_tokens"], usage["completion_tokens"])
        self.assertEqual(self.chat("B")[0], {"role": "assistant", "content": " Plain words, no mark."})
        self.assertEqual(self.chat("B")[1]["usage"]["completion_tokens_details"], {"reasoning_tokens": 0})

    def test_streamed(self):
        chunks = self.chunks("A")
        self.assertEqual(chunks[0]["delta"], {"role": "assistant", "content": ""})
        thoughts = [c["delta"]["reasoning_content"] for c in chunks if "reasoning_content" in c["delta"]]
        texts = [c["delta"]["content"] for c in chunks[1:] if "content" in c["delta"]]
        self.assertEqual("".join(thoughts), THOUGHT)
        self.assertEqual("".join(texts), "Four, I say.")
        self.assertGreater(len(thoughts), 2)
        kinds = ["reasoning_content" in c["delta"] for c in chunks[1:-1]]
        self.assertEqual(kinds, sorted(kinds, reverse=True), "the thinking comes first")
        self.assertEqual(chunks[-1]["finish_reason"], "stop")

    def test_thinking_that_max_tokens_cuts(self):
        message, reply = self.chat("C", max_tokens=4)
        self.assertEqual(message["content"], "")
        self.assertTrue(SCRIPTS["C"].startswith("<think>" + message["reasoning_content"]))
        self.assertEqual(reply["choices"][0]["finish_reason"], "length")
        chunks = self.chunks("C", max_tokens=4)
        self.assertEqual("".join(c["delta"].get("reasoning_content", "") for c in chunks), message["reasoning_content"])

    def test_stop_strings_act_on_the_answer(self):
        message, reply = self.chat("E", stop=["STOP"])
        self.assertEqual((message["reasoning_content"], message["content"]), ("a STOP here", "before "))
        self.assertEqual(reply["choices"][0]["finish_reason"], "stop")

    def test_log_probabilities_are_the_answers(self):
        _, reply = self.chat("A", logprobs=True, top_logprobs=1)
        listed = "".join(one["token"] for one in reply["choices"][0]["logprobs"]["content"])
        self.assertEqual(listed.split("\n")[-1], "Four, I say.")  # a piece holds the end of the mark, too
        self.assertNotIn("see", listed)
        listed = ""
        for chunk in self.chunks("A", logprobs=True):
            if chunk["logprobs"]:
                self.assertNotIn("reasoning_content", chunk["delta"])
                listed += "".join(one["token"] for one in chunk["logprobs"]["content"])
        self.assertEqual(listed.split("\n")[-1], "Four, I say.")
        _, reply = self.chat("B", logprobs=True)
        self.assertEqual("".join(one["token"] for one in reply["choices"][0]["logprobs"]["content"]), " Plain words, no mark.")

    def test_calls_behind_thinking_and_not_in_it(self):
        message, reply = self.chat("D", tools=[TOOL])
        self.assertEqual(message["reasoning_content"], 'Is <tool_call>{"name": "f"} one?')
        self.assertEqual([call["function"] for call in message["tool_calls"]], [{"name": "f", "arguments": '{"city": "Oslo"}'}])
        self.assertIsNone(message["content"])
        self.assertEqual(reply["choices"][0]["finish_reason"], "tool_calls")

    def test_left_in_the_text_or_out_of_the_reply(self):
        self.assertEqual(self.chat("A", reasoning_format="none")[0]["content"], SCRIPTS["A"])
        for fields in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
            self.assertEqual(self.chat("A", **fields)[0], {"role": "assistant", "content": "Four, I say."})
            self.assertFalse(any("reasoning_content" in c["delta"] for c in self.chunks("A", **fields)))

    def test_routes_of_texts_split_nothing(self):
        reply = self.server.good("/v1/completions", {"prompt": "A", "max_tokens": 99, **GREEDY})
        self.assertEqual(reply["choices"][0]["text"], SCRIPTS["A"])

    def test_a_form_is_the_answers(self):
        for form in ({"guided_regex": "Four, .*"}, {"grammar": 'root ::= "Four, " [a-zA-Z .]*'}):
            message, _ = self.chat("A", **form)
            self.assertEqual((message["reasoning_content"], message["content"]), (THOUGHT, "Four, I say."))
        schema = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"], "additionalProperties": False}
        wanted = {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
        message, _ = self.chat("J", **wanted)
        self.assertEqual((message["reasoning_content"], message["content"]), ("{}? or [1]", '{"a": "yy"}'))
        # Off: the form begins at once.
        message, _ = self.chat("J", max_tokens=200, enable_thinking=False, **wanted)
        self.assertNotIn("reasoning_content", message)
        self.assertIn(json.loads(message["content"])["a"], ["x", "yy"])


class Wishes(Thinking):
    def test_budgets_close_the_thinking(self):
        for name in ("thinking_budget_tokens", "reasoning_budget", "thinking_token_budget"):
            message, reply = self.chat("C", max_tokens=60, **{name: 3})
            self.assertTrue(message["reasoning_content"])
            self.assertTrue(SCRIPTS["C"].startswith("<think>" + message["reasoning_content"]))
            self.assertLess(len(message["reasoning_content"]), len(SCRIPTS["C"]) / 2)
            self.assertEqual(message["content"], SCRIPTS["\n"])
            self.assertEqual(reply["choices"][0]["finish_reason"], "stop")
        self.assertEqual(self.chat("A", thinking_budget_tokens=1000)[0]["reasoning_content"], THOUGHT)
        message, _ = self.chat("C", max_tokens=60, thinking_budget_tokens=3, guided_regex="At last: [A-Z][a-z]+[.]")
        self.assertEqual(message["content"], SCRIPTS["\n"])
        thinking = {"type": "enabled", "budget_tokens": 3}
        reply = self.server.good("/v1/messages", {"messages": [user("C")], "max_tokens": 60, "thinking": thinking, **GREEDY})
        self.assertEqual([block["type"] for block in reply["content"]], ["thinking", "text"])
        self.assertEqual(reply["content"][1]["text"], SCRIPTS["\n"])

    def test_off(self):
        closed = "<think>\n\n</think>\n\n"
        for fields in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}, {"enable_thinking": False},
                       {"thinking": {"type": "disabled"}}, {"reasoning": {"effort": "none"}}, {"thinking_budget": 0}, {"reasoning": {"enabled": False}}):
            self.assertTrue(self.prompt([user("A")], **fields).endswith(closed), fields)
            self.assertEqual(self.chat("A", **fields)[0], {"role": "assistant", "content": SCRIPTS["\n"]}, fields)
        for fields in ({}, {"reasoning_effort": "low"}, {"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"thinking": {"type": "adaptive"}},
                       {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}):
            self.assertTrue(self.prompt([user("A")], **fields).endswith("<assistant>A"), fields)

    def test_wishes_that_are_none(self):
        for fields, param in [({"reasoning_effort": "much"}, "reasoning_effort"), ({"reasoning_effort": 3}, "reasoning_effort"),
                              ({"thinking": {"type": "perhaps"}}, "thinking"), ({"thinking": 3}, "thinking"),
                              ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
                              ({"thinking_budget": -2}, "thinking_budget"), ({"thinking_budget": 1.5}, "thinking_budget"),
                              ({"thinking_budget": 1 << 60}, "thinking_budget"), ({"reasoning": []}, "reasoning"),
                              ({"reasoning": {"effort": "much"}}, "reasoning.effort"), ({"reasoning_format": "x"}, "reasoning_format"),
                              ({"enable_thinking": "yes"}, "enable_thinking")]:
            status, _, reply = self.server.ask("/v1/chat/completions", {"messages": [user("A")], **fields})
            self.assertEqual((status, reply["error"]["param"]), (400, param), reply)
        for fields in ({"reasoning_effort": None}, {"thinking": None}, {"reasoning": {"effort": None, "summary": "auto"}}, {"thinking_budget": -1}):
            self.assertEqual(self.chat("A", **fields)[0]["reasoning_content"], THOUGHT)


class Blocks(Thinking):
    def test_messages(self):
        reply = self.server.good("/v1/messages", {"messages": [user("A")], "max_tokens": 99, **GREEDY})
        thinking, text = reply["content"]
        self.assertEqual((thinking["type"], thinking["thinking"]), ("thinking", THOUGHT))
        self.assertTrue(thinking["signature"])
        self.assertEqual(text, {"type": "text", "text": "Four, I say."})
        events = self.events("/v1/messages", {"messages": [user("A")], "max_tokens": 99})
        blocks = [e for e in events if e["type"].startswith("content_block")]
        self.assertEqual([e["content_block"]["type"] for e in blocks if e["type"] == "content_block_start"], ["thinking", "text"])
        self.assertEqual([e["index"] for e in blocks], sorted(e["index"] for e in blocks))
        deltas = [e["delta"] for e in blocks if e["type"] == "content_block_delta"]
        self.assertEqual("".join(d["thinking"] for d in deltas if d["type"] == "thinking_delta"), THOUGHT)
        self.assertEqual([d["signature"] for d in deltas if d["type"] == "signature_delta"], [thinking["signature"]])
        self.assertEqual("".join(d["text"] for d in deltas if d["type"] == "text_delta"), "Four, I say.")

    def test_messages_with_a_call(self):
        tool = {"name": "f", "input_schema": TOOL["function"]["parameters"]}
        for stream in (False, True):
            body = {"messages": [user("D")], "max_tokens": 99, "tools": [tool], **GREEDY}
            if stream:
                kinds = [e["content_block"]["type"] for e in self.events("/v1/messages", body) if e["type"] == "content_block_start"]
            else:
                kinds = [block["type"] for block in self.server.good("/v1/messages", body)["content"]]
            self.assertEqual(kinds, ["thinking", "tool_use"])

    def test_responses(self):
        reply = self.server.good("/v1/responses", {"input": "A", **GREEDY})
        reasoning, message = reply["output"]
        self.assertEqual((reasoning["type"], reasoning["summary"]), ("reasoning", []))
        self.assertEqual(reasoning["content"], [{"type": "reasoning_text", "text": THOUGHT}])
        self.assertNotIn("encrypted_content", reasoning)
        self.assertEqual(message["content"][0]["text"], "Four, I say.")
        self.assertGreater(reply["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
        events = self.events("/v1/responses", {"input": "A", "include": ["reasoning.encrypted_content"]})
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        self.assertEqual("".join(e["delta"] for e in events if e["type"] == "response.reasoning_text.delta"), THOUGHT)
        self.assertEqual([e["text"] for e in events if e["type"] == "response.reasoning_text.done"], [THOUGHT])
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        self.assertEqual([item["type"] for item in done], ["reasoning", "message"])
        ids = {e["item_id"] for e in events if e["type"].startswith("response.reasoning_text")}
        self.assertEqual(ids, {done[0]["id"]})
        self.assertTrue(done[0]["encrypted_content"])


class History(Thinking):
    CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    def tokens(self, path, body):
        usage = self.server.good(path, {**body, **GREEDY})["usage"]
        return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)

    def count(self, messages, **fields):
        return len(self.server.good("/tokenize", {"content": self.prompt(messages, **fields), "add_special": True})["tokens"])

    def test_thinking_that_is_sent_back(self):
        kept = [user("qA"), {"role": "assistant", "content": "", "reasoning_content": "I look.", "tool_calls": [self.CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "rB"}]
        without = [kept[0], {**kept[1], "reasoning_content": None}, kept[2]]
        self.assertIn("<think>\nI look.\n</think>", self.prompt(kept))
        self.assertNotIn("<think>", self.prompt(without))
        use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        thinking = {"type": "thinking", "thinking": "I look.", "signature": "x"}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "rB"}]}
        for blocks, chat in (([thinking, use], kept), ([use], without), ([{"type": "redacted_thinking", "data": "x"}, use], without)):
            body = {"messages": [user("qA"), {"role": "assistant", "content": blocks}, result], "max_tokens": 1}
            self.assertEqual(self.tokens("/v1/messages", body), self.count(chat), blocks)
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": "rB"}
        for item, chat in (({"content": [{"type": "reasoning_text", "text": "I look."}]}, kept), ({"encrypted_content": "coppice:I look."}, kept),
                           ({"encrypted_content": "gAAAAB"}, without), ({"summary": [{"type": "summary_text", "text": "s"}]}, without)):
            items = [user("qA"), {"type": "reasoning", "id": "rs_1", "summary": [], **item}, call, output]
            self.assertEqual(self.tokens("/v1/responses", {"input": items, "max_output_tokens": 1}), self.count(chat), item)
        for names in ({"reasoning": "I look."}, {"reasoning": "I look.", "reasoning_content": None},
                      {"reasoning": "I look.", "reasoning_content": "I look."}):
            self.assertEqual(self.prompt([kept[0], {**without[1], **names}, kept[2]]), self.prompt(kept), names)
        parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "I look."}]}]
        self.assertEqual(self.prompt([kept[0], {**without[1], "content": parts}, kept[2]]), self.prompt(kept))

    def test_reasoning_in_front_of_a_message(self):
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}
        items = [user("qA"), {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]}, said, user("B")]
        chat = [user("qA"), {"role": "assistant", "content": "Yes", "reasoning_content": "I look."}, user("B")]
        self.assertEqual(self.tokens("/v1/responses", {"input": items, "max_output_tokens": 1}), self.count(chat))
        # One that nothing follows is no answer.
        self.assertEqual(self.tokens("/v1/responses", {"input": items[:2] + items[3:], "max_output_tokens": 1}), self.count([user("qA"), user("B")]))

    def test_the_cache_finds_the_prefix(self):
        """A result behind a call with its thinking: all but what is new comes from the cache."""
        long = "word " * 300
        body = {"messages": [user(long + "D")], "tools": [TOOL], "cache_salt": "h", **GREEDY}
        message = self.server.good("/v1/chat/completions", body)["choices"][0]["message"]
        follow = [*body["messages"], message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "B"}]
        usage = self.server.good("/v1/chat/completions", {**body, "messages": follow})["usage"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0.8 * usage["prompt_tokens"])


class Open(Thinking):
    """The prompt opens the thinking."""
    template = OPEN
    scripts = {"\n": "I think so.</think>Four."}

    def test_the_answer_begins_inside(self):
        self.assertEqual(self.chat("A")[0], {"role": "assistant", "content": "Four.", "reasoning_content": "I think so."})
        self.assertEqual(self.chat("A", max_tokens=1)[0]["content"], "")

    def test_off_closes_it_at_once(self):
        for fields in ({"reasoning_effort": "none"}, {"thinking_budget": 0}):
            message, _ = self.chat("A", max_tokens=12, **fields)
            self.assertNotIn("reasoning_content", message)

    def test_a_form_waits_for_the_end_of_the_thinking(self):
        self.assertEqual(self.chat("A", guided_choice=["Five.", "Four."])[0]["content"], "Four.")
        self.assertEqual(self.chat("A", guided_choice=["Five."])[0]["reasoning_content"], "I think so.")

    def test_a_begun_answer_is_answer(self):
        messages = [user("A"), {"role": "assistant", "content": "It is\n"}]
        template = {"chat_template_kwargs": {}}
        reply = self.server.good("/v1/chat/completions", {"messages": messages, **GREEDY, **template})
        self.assertIn("I think so.</think>Four.", reply["choices"][0]["message"]["content"])


class ControlTokens(Thinking):
    """Marks that are control tokens, which are no text of an answer."""
    scripts = {"A": "<think>\nHm, hm.\n</think>\n\nFour."}
    control = ("<think>", "</think>")

    def test_marks_are_seen(self):
        self.assertEqual(self.chat("A")[0], {"role": "assistant", "content": "Four.", "reasoning_content": "Hm, hm."})
        _, reply = self.chat("A", logprobs=True)
        self.assertEqual("".join(one["token"] for one in reply["choices"][0]["logprobs"]["content"]).lstrip(), "Four.")
        self.assertEqual(self.chat("A", reasoning_format="none")[0]["content"], "\nHm, hm.\n\n\nFour.")

    def test_a_form_reads_them(self):
        message, _ = self.chat("A", guided_choice=["Five.", "Four."])
        self.assertEqual((message["reasoning_content"], message["content"]), ("Hm, hm.", "Four."))


class Channels(Thinking):
    """gpt-oss' messages."""
    template = CHANNELS
    scripts = {"A": "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>final<|message|>Four."}

    def test_split(self):
        self.assertEqual(self.chat("A")[0], {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."})
        chunks = self.chunks("A")
        self.assertEqual("".join(c["delta"].get("reasoning_content", "") for c in chunks), "Two and two.")
        self.assertEqual("".join(c["delta"].get("content", "") for c in chunks), "Four.")

    def test_efforts(self):
        for sent, read in (("none", "low"), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high")):
            self.assertIn(read, self.prompt([user("x")], reasoning_effort=sent))


class Calling(Thinking):
    """Thinking and a call in the form of each family, whole and streamed, with and without the obligation to call."""
    TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "g"}}]
    template = TEMPLATE + "{# tools tool_calls <tool_call> <function=f> #}"
    scripts = {"A": "<think>\nIs <tool_call>\n<function=f> it?\n</think>\n\n<tool_call>\n<function=f>\n<parameter=city>\nOslo\n</parameter>\n"
                    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
               "B": "No call, <b>said</b> it."}
    thought = "Is <tool_call>\n<function=f> it?"
    said = "No call, <b>said</b> it."

    def test_calls(self):
        wanted = {"city": "Oslo", "days": 3}
        for choice in ("auto", "required", {"type": "function", "function": {"name": "f"}}):
            message, reply = self.chat("A", tools=self.TOOLS, tool_choice=choice)
            self.assertEqual(message["reasoning_content"], self.thought)
            ((name, arguments),) = [call["function"].values() for call in message["tool_calls"]]
            self.assertEqual((name, json.loads(arguments)), ("f", wanted))
            self.assertIsNone(message["content"])
            self.assertEqual(reply["choices"][0]["finish_reason"], "tool_calls")
            deltas = [chunk["delta"] for chunk in self.chunks("A", tools=self.TOOLS, tool_choice=choice)]
            self.assertEqual("".join(delta.get("reasoning_content", "") for delta in deltas), self.thought)
            told = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
            self.assertEqual([function["name"] for function in told if "name" in function], ["f"])
            self.assertEqual("".join(function["arguments"] for function in told), arguments)
            self.assertEqual("".join(delta.get("content") or "" for delta in deltas), "")
        tools = [{"name": "f", "input_schema": self.TOOLS[0]["function"]["parameters"]}]
        reply = self.server.good("/v1/messages", {"messages": [user("A")], "max_tokens": 200, "tools": tools, **GREEDY})
        self.assertEqual([block["type"] for block in reply["content"]], ["thinking", "tool_use"])
        self.assertEqual(reply["content"][1]["input"], wanted)
        items = self.server.good("/v1/responses", {"input": "A", "tools": [{"type": "function", **self.TOOLS[0]["function"]}], **GREEDY})["output"]
        self.assertEqual([item["type"] for item in items], ["reasoning", "function_call"])

    def test_no_calls(self):
        self.assertEqual(self.chat("B", tools=self.TOOLS)[0], {"role": "assistant", "content": self.said})
        # Without tools it is text.
        self.assertNotIn("tool_calls", self.chat("A")[0])
        self.assertIn("Oslo", self.chat("A")[0]["content"])


class CallingWithArgKeys(Calling):
    """GLM's."""
    template = TEMPLATE + "{# tools tool_calls <tool_call> <arg_key> #}"
    scripts = {"A": "<think>\nIs <tool_call>f it?\n</think>\n\n<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
                    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
               "B": "No call, <b>said</b> it."}
    thought = "Is <tool_call>f it?"


class CallingInMessages(Calling):
    """Muse Glimmer's."""
    template = TEMPLATE + "{# tools tool_calls <|start|>assistant to=self<|message|> <atem:function_calls> #}"
    scripts = {"A": " to=self<|message|>Is to=f it?<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n"
                    "<atem:parameter name=\"city\">Oslo</atem:parameter>\n<atem:parameter name=\"days\">3</atem:parameter>\n"
                    "</atem:invoke>\n</atem:function_calls>",
               "B": " to=user<|message|>No call, <b>said</b> it."}
    thought = "Is to=f it?"


class CallingInChannels(Calling):
    template = CHANNELS + "{# tools tool_calls to=functions. #}"
    scripts = {"A": "<|channel|>analysis<|message|>Is to=functions.f it?<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                    "<|constrain|>json<|message|>{\"city\": \"Oslo\", \"days\": 3}",
               "B": "<|channel|>final<|message|>No call, <b>said</b> it."}
    thought = "Is to=functions.f it?"

    def test_a_budget_leaves_calls(self):
        """The rest of the answer is drawn: only the form is sure."""
        town = {"type": "object", "required": ["city"], "additionalProperties": False, "properties": {"city": {"enum": ["Oslo", "Rome"]}}}
        tools = [{"type": "function", "function": {"name": name, "parameters": town}} for name in ("f", "g")]
        for choice in ("required", {"type": "function", "function": {"name": "f"}}):
            for seed in range(4):
                message, reply = self.chat("A", tools=tools, tool_choice=choice, thinking_budget_tokens=1, seed=seed, temperature=1, top_k=0, max_tokens=400)
                self.assertEqual(reply["choices"][0]["finish_reason"], "tool_calls", reply)
                self.assertTrue(self.thought.startswith(message["reasoning_content"]))
                (call,) = message["tool_calls"]
                self.assertIn(call["function"]["name"], ("f", "g") if choice == "required" else ("f",))
                self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Oslo", "Rome"))


class CallingInPython(Calling):
    template = TEMPLATE + "{# tools tool_calls <|tool_call_start|> #}"
    scripts = {"A": "<think>Is it [f()]?</think><|tool_call_start|>[f(city=\"Oslo\", days=3)]<|tool_call_end|>", "B": Calling.said}
    thought = "Is it [f()]?"


class CallingAsGemma4(Calling):
    template = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{{ messages[-1].content[-1] }}"
                "{# tools tool_calls enable_thinking '<|channel>thought\\n' '<channel|>' <|tool_call>call: #}")
    scripts = {"A": "<|channel>thought\nIs it call:f{}?<channel|><|tool_call>call:f{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>", "B": Calling.said}
    thought = "Is it call:f{}?"


class Default(Thinking):
    options = ("--reasoning", "off", "--reasoning-budget", "3")

    def test_flags_are_defaults(self):
        self.assertNotIn("reasoning_content", self.chat("A")[0])
        message, _ = self.chat("C", max_tokens=60, enable_thinking=True)
        self.assertTrue(message["reasoning_content"])
        self.assertEqual(message["content"], SCRIPTS["\n"])

    def test_run(self):
        done = subprocess.run([PROGRAM, "run", "-m", self.model, "--chat", "-p", "A", "--temp", "0"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "Four, I say.\n", done.stderr)
        done = subprocess.run([PROGRAM, "run", "-m", self.model, "--chat", "-p", "A", "--temp", "0", "--json"], capture_output=True, text=True, timeout=60)
        said = json.loads(done.stdout)
        self.assertEqual((said["text"], said["reasoning_content"]), ("Four, I say.", THOUGHT))
        done = subprocess.run([PROGRAM, "run", "-m", self.model, "--chat", "-p", "C", "--temp", "0", "-n", "60", "--reasoning-budget", "2"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, SCRIPTS["\n"] + "\n", done.stderr)


class Other(Thinking):
    """A template without marks changes nothing."""
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{{ messages[-1].content[-1] }}"

    def test_nothing_is_split(self):
        for letter in "ABC":
            self.assertEqual(self.chat(letter)[0], {"role": "assistant", "content": SCRIPTS[letter]})
        self.assertNotIn("completion_tokens_details", self.chat("A")[1]["usage"])
        self.assertEqual(self.chat("A", reasoning_effort="none", thinking_budget=1)[0]["content"], SCRIPTS["A"])


if __name__ == "__main__":
    unittest.main()
