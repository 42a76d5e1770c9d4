"""Turns of a chat cost what is new: the server reads, while idle, what the next turn begins with, and keeps conversations.

    server_next_turn_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import pathlib
import tempfile
import time
import unittest

from server_case import MODEL, PROGRAM, GREEDY
from chat_model import write_chat_model
from server_support import Server

TEMPLATE = """{% if tools %}[tools] {% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}{% for m in messages %}[{{ m.role }}] {{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
[end]
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
TOOL = {"name": "look", "description": "Looks something up. " * 20,
        "parameters": {"type": "object", "properties": {"what": {"enum": ["a", "b"]}}, "required": ["what"]}}
TOOLS = [{"type": "function", "function": TOOL}]
SYSTEM = "You look things up. " * 60
FEW = 12  # tokens beside the new text: what ends a message and begins the next


class NextTurn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.model = pathlib.Path(folder) / "mini.gguf"
            write_chat_model(MODEL, cls.model, TEMPLATE)
            cls.server = cls.start()
            cls.plain = cls.start("--no-next-turn")

    @classmethod
    def start(cls, *options):
        return Server(PROGRAM, cls.model, "-c", "8192", "-np", "2", *options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        assert [server.stop() for server in (cls.server, cls.plain)] == [0, 0]

    def settle(self, server):
        time.sleep(0.05)
        while any(slot["is_processing"] for slot in server.good("/slots")):
            time.sleep(0.02)

    def tokens(self, text):
        return len(self.server.good("/tokenize", {"content": text, "add_special": False})["tokens"])

    def chat(self, messages, server=None, **more):
        server = server or self.server
        reply = server.good("/v1/chat/completions", {"messages": messages, "max_tokens": 40, **GREEDY, **more})
        self.settle(server)
        return reply["choices"][0]["message"], reply["timings"]["prompt_n"], reply["timings"]["cache_n"]

    def completed(self, server=None):
        return (server or self.server).metrics()["coppice_documents_completed_total"]

    def two_turns(self, salt, server=None, **more):
        first = [{"role": "system", "content": salt + SYSTEM}, {"role": "user", "content": "Say something."}]
        said, _, _ = self.chat(first, server, tools=TOOLS, **more)
        result = [{"role": "tool", "tool_call_id": call["id"], "content": "Nothing."} for call in said.get("tool_calls") or []]
        after = result or [{"role": "user", "content": "Nothing."}]
        return self.chat([*first, said, *after], server, tools=TOOLS, **more), len(after)

    def test_the_second_turn_reads_only_what_is_new(self):
        (_, read, cached), after = self.two_turns("A")
        self.assertLessEqual(read, after * (self.tokens("Nothing.") + FEW))
        self.assertGreater(cached, 200)
        (_, otherwise, _), _ = self.two_turns("A", self.plain)
        self.assertGreater(otherwise, read + 20, "without the option the answer is read again")

    def test_calls_are_written_back(self):
        (_, read, _), after = self.two_turns("B", tool_choice="required")
        self.assertLessEqual(read, after * (self.tokens("Nothing.") + FEW))

    def test_answers_are_those_of_a_server_without_cache(self):
        said = [self.two_turns("C", server, **more)[0][0] for server, more in
                ((self.server, {}), (self.plain, {"cache_prompt": False}))]
        self.assertEqual([m["content"] for m in said[:1]], [m["content"] for m in said[1:]])

    def test_many_short_turns(self):
        """Each is far below what would leave an entry of its own."""
        history = [{"role": "system", "content": "D" + SYSTEM * 3}, {"role": "user", "content": "Begin."}]
        for number in range(5):
            said, read, _ = self.chat(history, tools=TOOLS, max_tokens=12, tool_choice="none")
            if number > 0:
                self.assertLessEqual(read, self.tokens(f"Go on, {number}.") + FEW, number)
            history += [said, {"role": "user", "content": f"Go on, {number + 1}."}]

    def test_both_other_routes(self):
        content = [{"type": "text", "text": "E" + SYSTEM, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        body = {"system": content, "max_tokens": 40, "messages": [{"role": "user", "content": "Say something."}], **GREEDY}
        first = self.server.good("/v1/messages", body)
        self.assertNotIn("cache_control", str(first.get("ignored_parameters")))
        self.settle(self.server)
        body["messages"] += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "Nothing."}]
        usage = self.server.good("/v1/messages", body)["usage"]
        self.assertLessEqual(usage["input_tokens"], self.tokens("Nothing.") + FEW)
        self.assertEqual(usage["cache_creation_input_tokens"], sum(usage["cache_creation"].values()))
        self.settle(self.server)

        body = {"instructions": "F" + SYSTEM, "input": [{"role": "user", "content": "Say something."}],
                "max_output_tokens": 40, "prompt_cache_key": "one", "prompt_cache_retention": "24h", **GREEDY}
        first = self.server.good("/v1/responses", body)
        self.settle(self.server)
        body["input"] += [*first["output"], {"role": "user", "content": "Nothing."}]
        usage = self.server.good("/v1/responses", body)["usage"]
        self.assertLessEqual(usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"],
                             self.tokens("Nothing.") + FEW)

    def test_only_conversations_are_read_ahead(self):
        user = [{"role": "user", "content": "G" + SYSTEM}]
        said = {"role": "assistant", "content": "Well"}
        for messages, more, reads in ((user, {}, 0), (user, {"tools": TOOLS}, 1), (user, {"tools": TOOLS, "n": 2}, 0),
                                      ([*user, said], {"tools": TOOLS}, 0), ([*user, said, *user], {}, 1),
                                      ([*user, said, *user], {"cache_prompt": False}, 0), (user, {"prompt_cache_key": "k"}, 1)):
            before = self.completed()
            self.server.good("/v1/chat/completions", {"messages": messages, "max_tokens": 8, **GREEDY, **more})
            self.settle(self.server)
            self.assertEqual(self.completed() - before, reads, (len(messages), more))
        self.two_turns("H", self.plain)
        self.assertEqual(self.completed(self.plain), 0)

    def test_hints_that_say_nothing(self):
        for more in ({"prompt_cache_key": 5}, {"cache_control": "x"}, {"cache_control": {"type": "ephemeral", "ttl": "9h"}},
                     {"prompt_cache_retention": None}):
            self.chat([{"role": "user", "content": "Hello."}], max_tokens=1, **more)
        block = {"type": "text", "text": "x", "cache_control": {"ttl": []}}
        self.server.good("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [block]}]})


if __name__ == "__main__":
    unittest.main()
