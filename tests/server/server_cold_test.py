"""Why a turn was cold: `timings.cache` of every route, whole and in streams; the log, the counters, and other clients.

    server_cold_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import tempfile
import unittest

from server_case import CTX, MODEL, PROGRAM, PROMPT_2K
from chat_model import write_chat_model
from server_support import Server

TEMPLATE = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- if tools %}[tools] {% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}
{%- for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last -%}
<think>{{ m.reasoning_content }}</think>
{% endif %}{{ m.content or '' }}
{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
SYSTEM = "You are an agent that edits files. " * 12
LONG = PROMPT_2K[:3000]
ROUTES = {"/v1/chat/completions": "messages", "/v1/messages": "messages", "/v1/responses": "input"}


def tool(name):
    return {"type": "function", "function": {"name": name, "description": f"Does what {name} does, in the current folder.",
                                             "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}


class Case(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.TemporaryDirectory()
        cls.log = pathlib.Path(cls.home.name) / "log"
        model = pathlib.Path(cls.home.name) / "mini.gguf"
        write_chat_model(MODEL, model, TEMPLATE)
        cls.server = Server(PROGRAM, model, "-c", CTX, "-np", "2", "--access-log", str(cls.log), *cls.options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.home.cleanup()
        assert code == 0, code

    def timings(self, path, body, stream=False, headers=None):
        """Those of the whole reply, or of the last event of a stream that has any."""
        limit = {"/v1/responses": "max_output_tokens", "/completion": "n_predict"}.get(path, "max_tokens")
        body = {"temperature": 0, limit: 4, **body}
        if not stream:
            return self.server.good(path, body, headers=headers)["timings"]
        status, _, text = self.server.ask(path, {**body, "stream": True}, headers=headers)
        self.assertEqual(status, 200, text)
        data = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        found = [e.get("timings") or e.get("response", {}).get("timings") for e in map(json.loads, data)]
        return [timings for timings in found if timings][-1]

    def cache(self, path, body, stream=False, headers=None):
        timings = self.timings(path, body, stream, headers)
        self.assertEqual(timings["cache"]["cached_tokens"], timings["cache_n"])
        return timings["cache"]

    def chat(self, system, *turns, **more):
        roles = ["user", "assistant"]
        messages = [{"role": roles[i % 2], "content": text} if isinstance(text, str) else text for i, text in enumerate(turns)]
        return {"system": system, "turns": messages, **more}

    def body(self, path, chat):
        """The chat in the form of the route."""
        chat = dict(chat)
        system, turns = chat.pop("system"), chat.pop("turns")
        if path == "/v1/messages":
            return {"system": system, "messages": turns, **chat}
        return {ROUTES[path]: [{"role": "system", "content": system}, *turns], **chat}

    def each_route(self):
        for path in ROUTES:
            for stream in (False, True):
                with self.subTest(path=path, stream=stream):
                    yield path, stream, f"{path}{stream}"


class Reasons(Case):
    def test_a_header_that_changes(self):
        for path, stream, salt in self.each_route():
            def ask(head):
                chat = self.chat(f"cch={head};\n{SYSTEM}", "Read the file.", cache_salt="head" + salt)
                return self.cache(path, self.body(path, chat), stream)
            first = ask("zebra")
            self.assertEqual((first["reason"], first["cached_tokens"], first["shared_tokens"]), ("first", 0, 0))
            self.assertNotIn("earlier", first)
            cold = ask("apple")
            self.assertEqual(cold["reason"], "differs", cold)
            self.assertLess(cold["differs_at"], 20)
            self.assertEqual(cold["shared_tokens"], cold["differs_at"])
            self.assertIn("zebra", cold["earlier"])
            self.assertIn("apple", cold["now"])
            self.assertRegex(cold["request"]["id"], r"^(chatcmpl-|msg_|resp_)[0-9a-f]{16}$")
            self.assertEqual(ask("zebra")["reason"], "continued", "the old header finds its entry again")

    def test_turns_that_go_on(self):
        for path, stream, salt in self.each_route():
            chat = self.chat(SYSTEM, "Read the file.", cache_salt="turns" + salt)
            self.assertEqual(self.cache(path, self.body(path, chat), stream)["reason"], "first")
            again = self.cache(path, self.body(path, chat), stream)
            self.assertEqual(again["reason"], "continued")
            self.assertEqual(again["cached_tokens"], again["shared_tokens"] - 1)
            self.assertNotIn("differs_at", again)
            self.assertEqual(again["entry"]["in"], "memory")
            self.assertEqual(again["entry"]["complete"], True)
            longer = self.chat(SYSTEM, "Read the file.", "It is empty.", "Write to it.", cache_salt="turns" + salt)
            self.assertGreater(self.cache(path, self.body(path, longer), stream)["cached_tokens"], 50)

    def test_tools_in_another_order(self):
        for stream in (False, True):
            names = ["read", "write", "search", "list"]

            def ask(names):
                body = {"messages": [{"role": "user", "content": "Go on."}], "tools": [tool(n) for n in names],
                        "cache_salt": f"tools{stream}"}
                return self.cache("/v1/chat/completions", body, stream)
            ask(names)
            cold = ask(["read", "list", "write", "search"])
            self.assertEqual(cold["reason"], "differs")
            self.assertIn("write", cold["earlier"])
            self.assertIn("list", cold["now"])
            self.assertGreater(cold["cached_tokens"], 10)

    def test_thinking_that_is_removed(self):
        thought = {"role": "assistant", "content": "The file is there.", "reasoning_content": "Where might it be? " * 10}
        turns = ["Is it there?", thought, {"role": "tool", "content": "yes, it is", "tool_call_id": "a"}]
        for stream in (False, True):
            salt = {"cache_salt": f"thinking{stream}"}
            path = "/v1/chat/completions"
            self.cache(path, self.body(path, self.chat(SYSTEM, *turns, **salt)), stream)
            turns.append({"role": "user", "content": "Fine."})
            cold = self.cache(path, self.body(path, self.chat(SYSTEM, *turns, **salt)), stream)
            turns.pop()
            self.assertEqual(cold["reason"], "differs")
            self.assertIn("think>", cold["earlier"])
            self.assertIn("The file", cold["now"])

    def test_the_conversation_and_not_the_latest_request(self):
        def ask(system, *turns):
            return self.cache("/v1/messages", self.body("/v1/messages", self.chat(system, *turns, cache_salt="two")))
        clock = "The time is {}.\n" + SYSTEM
        ask(clock.format("ten"), LONG)
        ask(clock.format("twelve"), "Something else.")
        ask("Give a title.", "Something else.")
        cold = ask(clock.format("twelve"), LONG, "Yes.", "And now?")
        self.assertGreater(cold["cached_tokens"], 50)
        self.assertGreater(cold["cached_tokens"], cold["differs_at"])
        self.assertIn("ten.", cold["earlier"])
        self.assertIn("twelve.", cold["now"])

    def test_completions_and_lists_of_prompts(self):
        for path in ("/v1/completions", "/completion"):
            for stream in (False, True):
                with self.subTest(path=path, stream=stream):
                    salt = {"cache_salt": path + str(stream)}
                    self.assertEqual(self.cache(path, {"prompt": LONG, **salt}, stream)["reason"], "first")
                    self.assertEqual(self.cache(path, {"prompt": LONG + " And?", **salt}, stream)["reason"], "continued")
        several = self.server.good("/completion", {"prompt": [LONG, LONG + " Why?"], "n_predict": 1, "cache_salt": "list"})
        self.assertEqual(sorted(reply["timings"]["cache"]["reason"] for reply in several), ["continued", "first"])
        self.assertIn("cache", self.timings("/v1/completions", {"prompt": LONG, "n": 3}))

    def test_off(self):
        for path, stream, salt in self.each_route():
            chat = self.chat(SYSTEM, "Read the file.", cache_salt="off" + salt)
            self.cache(path, self.body(path, chat), stream)
            off = self.cache(path, self.body(path, {**chat, "cache_prompt": False}), stream)
            self.assertEqual(off, {"cached_tokens": 0, "shared_tokens": 0, "reason": "off"})
        body = {"prompt": LONG, "cache_prompt": False, "cache_salt": "hidden"}
        self.cache("/v1/completions", body)
        self.assertEqual(self.cache("/v1/completions", {**body, "cache_prompt": True})["reason"], "first", "it was recorded")
        scored = self.cache("/v1/completions", {"prompt": "One two three", "echo": True, "logprobs": 1})
        self.assertEqual(scored["reason"], "off")

    def test_a_method_that_may_not_use_the_entry(self):
        body = {"prompt": LONG, "cache_salt": "point"}
        self.cache("/v1/completions", body)
        pruned = self.cache("/v1/completions", {**body, "prune": "sliminfer:layers=4/6/8,keep=512/256/128,min=0",
                                                  "prune_when": "always"})
        self.assertEqual((pruned["reason"], pruned["cached_tokens"]), ("pruned", 0))
        body["cache_salt"] = "method"
        self.cache("/v1/completions", {**body, "prune": "h2o:min=0"})
        cold = self.cache("/v1/completions", body)
        self.assertEqual((cold["reason"], cold["entry"]), ("not_kept", {"not_kept": "method"}))

    def test_texts_are_valid_and_short(self):
        for number, part in enumerate(["\u20ac" * 40, "\u0001\u001f\"\\", "\U0001f600 \u00e9", "<s></s>"]):
            salt = {"cache_salt": f"text{number}"}
            self.cache("/v1/completions", {"prompt": LONG + part + "a" + part, **salt})
            cold = self.cache("/v1/completions", {"prompt": LONG + part + "b" + part, **salt})
            for text in (cold["earlier"], cold["now"]):
                self.assertLess(len(text.encode()), 257)
                self.assertNotIn("\ufffd", text)

    def test_the_log_has_no_texts(self):
        logged = []
        for animal in ("walrus", "badger"):
            body = self.body("/v1/messages", self.chat(f"The {animal} is secret. {SYSTEM}", "Go.", cache_salt="log"))
            reply = self.server.good("/v1/messages", {**body, "max_tokens": 4})
            self.server.wait_for(lambda: f"id={reply['id']} " in self.log.read_text())
            logged += [line for line in self.log.read_text().splitlines() if f"id={reply['id']} " in line]
        self.assertEqual(len(logged), 2)
        self.assertRegex(logged[0], r"generated=\d+ cache=0/0 reason=first$")
        self.assertRegex(logged[1], r"generated=\d+ cache=\d+/\d+ reason=differs$")
        for animal in ("walrus", "badger"):
            self.assertNotIn(animal, self.log.read_text())

    def test_metrics_count_by_reason(self):
        self.server.wait_idle()  # an answer is counted after it was sent
        before = self.server.metrics()
        body = {"prompt": LONG, "cache_salt": "metrics"}
        read = [self.timings("/v1/completions", {**body, "prompt": prompt})["prompt_n"] for prompt in (LONG, LONG + " And?")]

        def grown(name):
            return self.server.metrics()[name] - before[name]
        self.server.wait_idle()
        self.assertEqual(grown('coppice_prompts_total{reason="continued"}'), 1)
        self.assertEqual(grown('coppice_prompts_total{reason="first"}'), 1)
        self.assertEqual(grown('coppice_prompt_tokens_computed_total{reason="first"}'), read[0])
        self.assertEqual(grown('coppice_prompt_tokens_computed_total{reason="continued"}'), read[1])


class Evicted(Case):
    options = ("--cache-ram", "8")  # MiB: for LONG (1,034 tokens of 5,124 bytes), not for PROMPT_2K (2,219)

    def test_small_memory(self):
        ask = lambda prompt: self.cache("/v1/completions", {"prompt": prompt})
        ask(LONG)
        for number in range(3):
            ask(f"{number} " + LONG)
        cold = ask(LONG + " And?")
        self.assertEqual(cold["reason"], "evicted", cold)
        self.assertEqual(cold["entry"]["gone"], "memory")
        self.assertEqual(cold["cached_tokens"], 0)
        self.assertGreater(cold["shared_tokens"], 300)
        ask(PROMPT_2K)
        cold = ask(PROMPT_2K + " And?")
        self.assertEqual((cold["reason"], cold["entry"]), ("not_kept", {"not_kept": "too_large"}))

    def test_erased(self):
        ask = lambda prompt: self.cache("/v1/completions", {"prompt": prompt, "cache_salt": "erased", "id_slot": 0})
        ask(LONG)
        self.server.good("/slots/0?action=erase", {})
        cold = ask(LONG + " And?")
        self.assertEqual((cold["reason"], cold["entry"]["gone"]), ("evicted", "erased"))


class Off(Case):
    options = ("--cache-ram", "0")

    def test_no_cache(self):
        for _ in range(2):
            self.assertEqual(self.cache("/v1/completions", {"prompt": LONG}),
                             {"cached_tokens": 0, "shared_tokens": 0, "reason": "off"})


class Clients(Case):
    options = ("--api-key", "one,two")

    def test_no_other_client_is_told(self):
        def ask(key, prompt, **fields):
            return self.cache("/v1/completions", {"prompt": prompt, **fields}, headers={"X-Api-Key": key})
        ask("one", LONG + " The secret is walrus, and nothing else.")
        for key, fields in [("two", {}), ("one", {"cache_salt": "a"}), ("two", {"cache_salt": "a"})]:
            reply = ask(key, LONG + " The secret is", **fields)
            self.assertEqual(reply, {"cached_tokens": 0, "shared_tokens": 0, "reason": "first"})
        own = ask("one", LONG + " The secret is mine, as is everything else.")
        self.assertIn("walrus", own["earlier"])
        for number in range(70):  # more than the record has of one owner
            ask("two", f"{number} of many prompts of another client")
        self.assertEqual(ask("one", LONG + " The secret is mine, as is everything else. And?")["reason"], "continued")


if __name__ == "__main__":
    unittest.main()
