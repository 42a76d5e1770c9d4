"""Answers in a form that the request names: JSON, schemas, GBNF, regular expressions, calls of functions.

    server_forms_test.py PROGRAM SOURCE_DIR [unittest arguments]

The model is one that knows nothing of JSON, and draws at a high temperature: whatever it says, the form must hold.
"""

import json
import re
import tempfile
import time
import unittest

from server_case import CTX, Case, MODEL, PROGRAM
from chat_model import TEMPLATE, write_chat_model
from server_support import Server

WILD = {"temperature": 1.5, "top_p": 1, "min_p": 0, "max_tokens": 400}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 130},
                                           "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
                                           "kind": {"enum": ["person", "robot"]}},
          "required": ["name", "age", "kind"], "additionalProperties": False}


class Forms(Case):
    def texts(self, count=8, stream=False, **form):
        """Answers that ended by themselves."""
        for seed in range(count):
            body = {"prompt": "Say something: ", "seed": seed, **WILD, **form}
            choice = self.server.good("/v1/completions", body)["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop", choice)
            yield choice["text"]

    def check_person(self, text):
        person = json.loads(text)
        self.assertLessEqual({"name", "age", "kind"}, set(person))
        self.assertLessEqual(set(person), set(PERSON["properties"]))
        self.assertTrue(1 <= len(person["name"]) <= 12, person)
        self.assertTrue(0 <= person["age"] <= 130, person)
        self.assertIn(person["kind"], ("person", "robot"))
        self.assertLessEqual(set(person.get("tags", [])), {"a", "b"})

    def test_schemas_by_every_name(self):
        wrapped = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
        for form in [{"json_schema": PERSON}, {"guided_json": PERSON}, {"guided_json": json.dumps(PERSON)},
                     {"response_format": wrapped}, {"response_format": {"type": "json_object", "schema": PERSON}}]:
            for text in self.texts(4, **form):
                self.check_person(text)

    def test_greedy_top_k_and_the_whole_vocabulary_agree_with_the_form(self):
        for how in [{"temperature": 0}, {"top_k": 1}, {"top_k": 0}, {"top_n_sigma": 1}, {"top_k": 3, "typical_p": 0.5}]:
            for text in self.texts(3, json_schema=PERSON, **how):
                self.check_person(text)

    def test_pruned_answers_keep_the_form(self):
        body = {"prompt": "word " * 900, "prune": "random:keep=0.4,min=0", "seed": 1, **WILD, "json_schema": PERSON}
        reply = self.server.good("/v1/completions", body)
        self.assertTrue(reply["prune"]["active"])
        self.check_person(reply["choices"][0]["text"])
        held = self.server.good("/v1/completions", {**body, "prune": {"spec": "random:keep=0.4,min=0", "fallback": 1.0}})
        self.check_person(held["choices"][0]["text"])

    def test_grammars_regular_expressions_and_choices(self):
        for text in self.texts(grammar='root ::= ("yes" | "no") ", " [a-z]{3,5} "."'):
            self.assertRegex(text, r"\A(yes|no), [a-z]{3,5}\.\Z")
        for text in self.texts(guided_regex=r"[A-Z]{2}-\d{3}(x|yy)?"):
            self.assertTrue(re.fullmatch(r"[A-Z]{2}-\d{3}(x|yy)?", text), text)
        said = set(self.texts(16, guided_choice=["red", "green", "grün"]))
        self.assertLessEqual(said, {"red", "green", "grün"})
        self.assertGreater(len(said), 1)

    def test_many_answers_and_streams(self):
        reply = self.server.good("/v1/completions", {"prompt": ["a", "b"], "n": 2, "json_schema": PERSON, **WILD})
        for choice in reply["choices"]:
            self.check_person(choice["text"])
        status, _, text = self.server.ask("/v1/completions", {"prompt": "x", "stream": True, "seed": 3, "json_schema": PERSON, **WILD})
        self.assertEqual(status, 200)
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        self.check_person("".join(c["choices"][0]["text"] for c in chunks if c["choices"]))

    def test_json_objects_may_be_cut_but_never_wrong(self):
        whole = 0
        for seed in range(6):
            body = {"prompt": "{", "seed": seed, "response_format": {"type": "json_object"}, **WILD, "max_tokens": 150}
            choice = self.server.good("/v1/completions", body)["choices"][0]
            if choice["finish_reason"] == "stop":
                whole += 1
                self.assertIsInstance(json.loads(choice["text"]), dict)
            else:
                self.assertTrue(choice["text"].startswith("{"))
        self.assertLessEqual(whole, 6)

    def test_an_answer_ends_where_its_form_ends(self):
        reply = self.server.good("/v1/completions", {"prompt": "x", "guided_choice": ["abc"], **WILD})
        self.assertEqual(reply["choices"][0]["text"], "abc")
        native = self.server.good("/completion", {"prompt": "x", "grammar": 'root ::= "abc"', "n_predict": 50})
        self.assertEqual((native["content"], native["stop_type"]), ("abc", "eos"))
        cut = self.server.good("/v1/completions", {"prompt": "x", "guided_choice": ["a" * 200], **WILD, "max_tokens": 3})
        self.assertEqual(cut["choices"][0]["finish_reason"], "length")

    def test_what_cannot_be_is_refused(self):
        prompt = {"prompt": "x", "max_tokens": 5}
        for form, field in [({"grammar": "root ::= ("}, "grammar"), ({"grammar": 7}, "grammar"), ({"grammar": 'root ::= root "a"'}, "grammar"),
                            ({"json_schema": {"not": {}}}, "json_schema"), ({"json_schema": 3}, "json_schema"),
                            ({"json_schema": {"type": "object", "properties": {"a": {"multipleOf": 3}}}}, "json_schema"),
                            ({"guided_regex": "(a)\\1"}, "guided_regex"), ({"guided_choice": []}, "guided_choice"),
                            ({"guided_choice": ["a", 1]}, "guided_choice"), ({"guided_json": "{"}, "guided_json"),
                            ({"response_format": {"type": "xml"}}, "response_format"),
                            ({"response_format": {"type": "json_schema"}}, "response_format"),
                            ({"json_schema": True, "grammar": 'root ::= "a"'}, "json_schema")]:
            self.refused("/v1/completions", {**prompt, **form}, param=field)
        self.assertEqual(self.server.good("/v1/completions", {**prompt, "grammar": "", "json_schema": None})["usage"]["completion_tokens"], 5)

    def test_rules_that_call_themselves_at_both_ends(self):
        """Written so, a grammar is ambiguous; it is kept as one that is not."""
        for grammar in ("root ::= root root | [a-z ]", "root ::= root \" \" root | root root | [a-z]", "root ::= [a-z] root | \"\""):
            text = self.server.good("/v1/completions", {"prompt": "x", "max_tokens": 20, "grammar": grammar, **WILD})["choices"][0]["text"]
            self.assertRegex(text, "^[a-z ]*$")

    def test_hostile_forms_end_soon(self):
        doubling = {"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)} | {"a40": {"type": "string"}}}
        bombs = [{"grammar": "root ::= " + "(" * 500000}, {"grammar": 'root ::= "a"' + "{1000}" * 20},
                 {"grammar": "\n".join(["root ::= a0"] + [f"a{i} ::= a{i + 1} a{i + 1}" for i in range(50)] + ['a50 ::= "x"'])},
                 {"grammar": "root ::= root root root | \"a\" | \"\"", "max_tokens": 60, "temperature": 0},
                 {"json_schema": doubling}, {"json_schema": {"type": "string", "maxLength": 99999}},
                 {"json_schema": {"type": "string", "pattern": "^(((a{99}){99}){99})$"}}, {"guided_regex": "(a|b)*a(a|b){40}"},
                 {"grammar": 'root ::= (""{100000}){100000} "a"'}, {"grammar": 'root ::= (' + '""{100000} ' * 6 + '){100000} "a"'},
                 {"grammar": 'root ::= ((""{0,100000}){0,100000}){0,100000} "a"'}, {"grammar": 'root ::= (root{1000}){60} | ""'},
                 {"grammar": 'root ::= e0 "a"\n' + "".join(f"e{i} ::= e{i + 1} | e0\n" for i in range(16000)) + 'e16000 ::= ""'},
                 {"grammar": "root ::= root root | [a-z ]"}, {"grammar": "root ::= [a-z ] root | root [a-z ] | root root | \"\""},
                 {"grammar": "root ::= x x | [a-z ]\nx ::= root | root x"}, {"grammar": "root ::= x\nx ::= (x | [a-z ]) (x | [a-z ])?"},
                 {"json_schema": {"allOf": [{"anyOf": [{}] * 5000}, {"anyOf": [{}] * 5000}]}},
                 {"json_schema": {"anyOf": [{"a": 1}] * 13000}}, {"json_schema": {"anyOf": [{"minimum": i} for i in range(10000)]}},
                 {"json_schema": {"oneOf": [{"enum": list(range(1000 * i, 1000 * i + 900))} for i in range(60)]}},
                 {"json_schema": {"type": "string", "pattern": "|" * 300000}}, {"guided_regex": "|" * 50000}]
        for bomb in bombs:
            start = time.monotonic()
            status, _, reply = self.server.ask("/v1/completions", {"prompt": "x", "max_tokens": 5, **bomb})
            self.assertIn(status, (200, 400), reply)
            self.assertLess(time.monotonic() - start, 60, bomb)
        self.assertEqual(self.server.good("/health"), {"status": "ok"})


class Calls(unittest.TestCase):
    """A chat model whose template knows no functions, so that the server writes them into the conversation."""

    WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"place": {"enum": ["Ulm", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["place", "days"], "additionalProperties": False}}}
    CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}

    words = ""  # of the template, which say the form of calls

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = f"{cls.folder.name}/chat.gguf"
        write_chat_model(MODEL, path, TEMPLATE + cls.words)
        cls.server = Server(PROGRAM, path, "-c", CTX, "--cache-ram", "0").wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def ask(self, **fields):
        body = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [self.WEATHER, self.CLOCK], **WILD, **fields}
        return self.server.good("/v1/chat/completions", body)["choices"][0]

    def check(self, call):
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "clock":
            self.assertEqual(arguments, {})
            return
        self.assertEqual(call["function"]["name"], "weather")
        self.assertEqual(set(arguments), {"place", "days"})
        self.assertIn(arguments["place"], ("Ulm", "Rome"))
        self.assertTrue(1 <= arguments["days"] <= 9)

    def test_required_and_named_calls_fit_their_parameters(self):
        names = set()
        for seed in range(6):
            choice = self.ask(seed=seed, tool_choice="required", parallel_tool_calls=False)
            self.assertEqual(choice["finish_reason"], "tool_calls", choice)
            self.assertEqual(len(choice["message"]["tool_calls"]), 1)
            self.check(choice["message"]["tool_calls"][0])
            names.add(choice["message"]["tool_calls"][0]["function"]["name"])
            named = self.ask(seed=seed, tool_choice={"type": "function", "function": {"name": "weather"}}, parallel_tool_calls=False)
            self.assertEqual(named["message"]["tool_calls"][0]["function"]["name"], "weather")
            self.check(named["message"]["tool_calls"][0])
        self.assertLessEqual(names, {"weather", "clock"})

    def test_other_forms_of_chats_require_calls_too(self):
        tool = self.WEATHER["function"]
        reply = self.server.good("/v1/messages", {"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 400, "temperature": 1,
                                                  "tools": [{"name": "weather", "input_schema": tool["parameters"]}],
                                                  "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}})
        self.assertEqual((reply["stop_reason"], reply["content"][0]["type"]), ("tool_use", "tool_use"))
        self.assertEqual(set(reply["content"][0]["input"]), {"place", "days"})
        reply = self.server.good("/v1/responses", {"input": "Weather?", "max_output_tokens": 400, "parallel_tool_calls": False,
                                                   "tools": [{"type": "function", **tool}], "tool_choice": "required"})
        self.assertEqual(reply["output"][0]["type"], "function_call")
        text = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
        reply = self.server.good("/v1/responses", {"input": "Who?", "max_output_tokens": 400, "text": text, "reasoning": {"effort": "none"}})
        self.assertLessEqual({"name", "age", "kind"}, set(json.loads(reply["output"][-1]["content"][0]["text"])))

    def test_calls_or_the_form(self):
        form = {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}
        for seed in range(6):
            choice = self.ask(seed=seed, response_format=form, parallel_tool_calls=False)
            if choice["finish_reason"] == "tool_calls":
                self.check(choice["message"]["tool_calls"][0])
            else:
                self.assertEqual(choice["finish_reason"], "stop", choice)
                self.assertIn("name", json.loads(choice["message"]["content"]))

    # A list of numbers without repetitions: the grammar keeps the numbers.
    ODD = {"name": "odd", "parameters": {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {
        "a": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 5, "uniqueItems": True}}}}

    def test_a_strict_function_must_be_kept(self):
        strict = {"type": "function", "function": {**self.ODD, "strict": True}}
        body = {"messages": [{"role": "user", "content": "x"}], "tools": [strict], "tool_choice": "required", "max_tokens": 5}
        status, _, reply = self.server.ask("/v1/chat/completions", body)
        self.assertEqual((status, reply["error"]["param"]), (400, "tools"), reply)
        self.assertIn("odd", reply["error"]["message"])

    def test_replies_say_what_is_not_enforced_and_what_does_not_fit(self):
        chat = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": self.ODD}],
                "tool_choice": "required", "parallel_tool_calls": False, **WILD}
        messages = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 400, "temperature": 1,
                    "tools": [{"name": "odd", "input_schema": self.ODD["parameters"]}],
                    "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        responses = {"input": "x", "tools": [{"type": "function", **self.ODD}], "tool_choice": "required",
                     "max_output_tokens": 400, "parallel_tool_calls": False}
        for route, body in [("/v1/chat/completions", chat), ("/v1/messages", messages), ("/v1/responses", responses)]:
            reply = self.server.good(route, body)
            self.assertEqual(reply["ignored_parameters"], ["tools.odd: uniqueItems"], reply)
            # Of three items out of two values, two are equal.
            (error,) = reply["tool_call_errors"]
            self.assertEqual((error["tool_call"], error["name"], error["path"]), (0, "odd", "/a"), reply)
            self.assertRegex(error["message"], "items . and . are equal")
            status, _, events = self.server.ask(route, {**body, "stream": True})
            self.assertEqual(status, 200)
            for field in ("ignored_parameters", "tool_call_errors"):
                self.assertEqual(events.count(f'"{field}"'), 1, events)


class XmlCalls(Calls):
    words = "{# tools tool_calls <tool_call> <function=example> #}"


class PythonCalls(Calls):
    words = "{# tools tool_calls <|tool_call_start|> #}"


class GemmaCalls(Calls):
    words = "{# tools tool_calls <|tool_call>call:example #}"


class ChannelCalls(Calls):
    words = "{# tools tool_calls <|start|>assistant<|channel|>commentary<|message|> to=functions.example #}"


if __name__ == "__main__":
    unittest.main()
