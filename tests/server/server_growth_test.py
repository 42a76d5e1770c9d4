"""Time and memory of the server by the size of what it is sent: every field of every route, and what is nested in them.

    server_growth_test.py PROGRAM SOURCE_DIR [--long] [--without REGEX] [unittest arguments]

The fields are those of the server's own table (src/server/parameter_*.cpp). --long tries larger inputs, all fields on
all routes, and all places with all texts. --without leaves out what its expression finds in "PLACE: TEXT".
"""

import os
import pathlib
import re
import sys
import tempfile
import time
import unittest


def taken(option, has_value=False):
    """The option's value, or whether it is there; takes it from the command line."""
    if option not in sys.argv:
        return None
    at = sys.argv.index(option)
    value = sys.argv[at + 1] if has_value else True
    del sys.argv[at:at + (2 if has_value else 1)]
    return value


LONG = taken("--long")
WITHOUT = taken("--without", has_value=True)

from server_case import MODEL, PROGRAM, SOURCE  # noqa: E402

import growth  # noqa: E402
from chat_model import write_chat_model  # noqa: E402
from server_support import Server, is_sanitized, patience  # noqa: E402

SIZE = 1 << (19 if LONG else 16)  # bytes; twice as many are tried, too
TICK = os.sysconf("SC_CLK_TCK")
LIMITS = growth.Limits(factor=patience(PROGRAM))
ROUTES = {"kCompletions": "/v1/completions", "kChat": "/v1/chat/completions", "kTokenize": "/tokenize", "kDetokenize": "/detokenize",
          "kApplyTemplate": "/apply-template", "kNative": "/completion", "kEmbeddings": "/v1/embeddings"}
USER = [{"role": "user", "content": "x"}]
BASES = {"/v1/completions": {"prompt": "x", "max_tokens": 1}, "/completion": {"prompt": "x", "n_predict": 1},
         "/v1/chat/completions": {"messages": USER, "max_tokens": 1}, "/tokenize": {}, "/detokenize": {},
         "/apply-template": {"messages": USER}, "/v1/embeddings": {"input": "x"},
         "/v1/messages": {"max_tokens": 1, "messages": USER}, "/v1/responses": {"input": "x", "max_output_tokens": 1}}


def table():
    """{route: names of its fields}, by the source of the server's table."""
    def set_of(expression):
        bits = {name: {path} for name, path in ROUTES.items()}
        bits |= {"kCompletes": bits["kCompletions"] | bits["kNative"], "~0u": set(ROUTES.values())}
        bits |= {"kGenerates": bits["kCompletes"] | bits["kChat"], "kRendersChat": bits["kChat"] | bits["kApplyTemplate"]}
        return set().union(*(bits[name.strip()] for name in expression.split("|")))

    rows = []
    for name in ("input", "sampling", "table"):
        source = (SOURCE / f"src/server/parameter_{name}.cpp").read_text()
        rows += re.findall(r'^ +(?:Where\(&\w+,\s*)?\{"([a-z_ ]+)",\s*([~\w |]+),', source[source.index("constexpr Field kFields[]"):], re.M)
    assert len(rows) > 90, rows
    fields = {path: {} for path in ROUTES.values()}
    for names, routes in rows:
        for path in set_of(routes):
            fields[path].update(dict.fromkeys(names.split()))
    return {path: list(names) for path, names in fields.items()}


def tool(**function):
    return [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, **function}}]


def schema(value):
    return {"prompt": "x", "max_tokens": 1, "json_schema": value}


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# Places within fields: a path, and the body around a text.
NESTED = {
    "role": (CHAT, lambda t: {"messages": [{"role": t, "content": "x"}]}),
    "message's name": ("/apply-template", lambda t: {"messages": [{"role": "user", "name": t, "content": "x"}]}),
    "content": ("/apply-template", lambda t: {"messages": [{"role": "user", "content": t}]}),
    "content of a chat": (CHAT, lambda t: {"messages": [{"role": "user", "content": t}], "max_tokens": 1}),
    "system": (CHAT, lambda t: {"messages": [{"role": "system", "content": t}, *USER], "max_tokens": 1}),
    "prefilled answer": (CHAT, lambda t: {"messages": [*USER, {"role": "assistant", "content": t}], "max_tokens": 1}),
    "parts": (CHAT, lambda t: {"messages": [{"role": "user", "content": [{"type": "text", "text": t}] * 2}], "max_tokens": 1}),
    "part's type": (CHAT, lambda t: {"messages": [{"role": "user", "content": [{"type": t, "text": "x"}]}]}),
    "part's member": (CHAT, lambda t: {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", t: t}]}]}),
    "call's arguments": (CHAT, lambda t: {"messages": [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": t}}]}, {"role": "tool", "tool_call_id": "c", "content": t}],
        "max_tokens": 1}),
    "call's name": (CHAT, lambda t: {"messages": [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": t, "type": "function", "function": {"name": t, "arguments": "{}"}}]}], "max_tokens": 1}),
    "tool's name": (CHAT, lambda t: {"messages": USER, "max_tokens": 1, "tools": tool(name=t)}),
    "tool's description": (CHAT, lambda t: {"messages": USER, "max_tokens": 1, "tools": tool(description=t)}),
    "tool's property": (CHAT, lambda t: {"messages": USER, "max_tokens": 1, "tools": tool(parameters={"type": "object", "properties": {t: {}}})}),
    "tool_choice": (CHAT, lambda t: {"messages": USER, "max_tokens": 1, "tools": tool(), "tool_choice": {"type": "function", "function": {"name": t}}}),
    "template's key": ("/apply-template", lambda t: {"messages": USER, "chat_template_kwargs": {t: 1}}),
    "template's value": ("/apply-template", lambda t: {"messages": USER, "chat_template_kwargs": {"mood": t}}),
    "schema's type": (TEXT, lambda t: schema({"type": t})),
    "schema's const": (TEXT, lambda t: schema({"const": t})),
    "schema's enum": (TEXT, lambda t: schema({"enum": [t, t + "b"]})),
    "schema's pattern": (TEXT, lambda t: schema({"type": "string", "pattern": t})),
    "schema's property": (TEXT, lambda t: schema({"type": "object", "properties": {t: {"type": "null"}}, "required": [t]})),
    "schema's reference": (TEXT, lambda t: schema({"$ref": "#/$defs/" + t, "$defs": {t: {"type": "null"}}})),
    "schema's format": (TEXT, lambda t: schema({"type": "string", "format": t})),
    "schema's keyword": (TEXT, lambda t: schema({"type": "string", t: t})),
    "response_format": (CHAT, lambda t: {"messages": USER, "max_tokens": 1, "response_format": {
        "type": "json_schema", "json_schema": {"name": t, "schema": {"const": t}}}}),
    "rule's text": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "grammar": "root ::= " + dumps_text(t)}),
    "rule's name": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "grammar": "root ::= a\n" + t + " ::= \"a\""}),
    "rule": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "grammar": "root ::= " + t}),
    "choices": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "guided_choice": [t, t + "b"]}),
    "logit_bias": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "logit_bias": {t: 1}}),
    "pairs of logit_bias": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "logit_bias": [[t[:1000], 1]] * min(1000, len(t) // 60)}),
    "stops": (TEXT, lambda t: {"prompt": "x", "max_tokens": 24, "ignore_eos": True, "stop": [t[:1000] + str(i) for i in range(min(64, len(t) // 1000))]}),
    "breakers": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "dry_multiplier": 1, "dry_sequence_breakers": [t[:1000] + str(i) for i in range(min(64, len(t) // 1000))]}),
    "one breaker": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "dry_multiplier": 1, "dry_sequence_breakers": [t]}),
    "prune's spec": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "prune": {"method": t}}),
    "spec's methods": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "prune": "+".join(["none"] * (len(t) // 5)) + t[:4]}),
    "spec's value": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "prune": "static:keep=" + t}),
    "protected spans": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, "prune": {"method": "static", "protect": [[0, 1]] * (len(t) // 6)}}),
    "question": (TEXT, lambda t: {"prompt": t[:2000], "max_tokens": 1, "prune": {"method": "static", "question": t}}),
    "plan": ("/plan", lambda t: {"prompt_tokens": 100, "prune": t}),
    "text object": (TEXT, lambda t: {"prompt": {"prompt_string": t}, "max_tokens": 1}),
    "mixed prompt": (TEXT, lambda t: {"prompt": [t, 5, t], "max_tokens": 1}),
    "pieces": ("/tokenize", lambda t: {"content": t, "with_pieces": True}),
    "special text": ("/tokenize", lambda t: {"content": t, "parse_special": True, "add_special": True}),
    "name of a field": (TEXT, lambda t: {"prompt": "x", "max_tokens": 1, t: 1}),
    "file name": ("/slots/0?action=save", lambda t: {"filename": t}),
    "system of messages": ("/v1/messages", lambda t: {"max_tokens": 1, "system": t, "messages": USER}),
    "blocks of messages": ("/v1/messages", lambda t: {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": t}]}]}),
    "tool use of messages": ("/v1/messages", lambda t: {"max_tokens": 1, "messages": [*USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"a": t}}]}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": t}]}]}),
    "tool of messages": ("/v1/messages", lambda t: {"max_tokens": 1, "messages": USER, "tools": [{"name": "f", "description": t, "input_schema": {"type": "object"}}]}),
    "items of responses": ("/v1/responses", lambda t: {"max_output_tokens": 1, "input": [{"role": "user", "content": [{"type": "input_text", "text": t}]}]}),
    "instructions": ("/v1/responses", lambda t: {"max_output_tokens": 1, "instructions": t, "input": "x"}),
    "call of responses": ("/v1/responses", lambda t: {"max_output_tokens": 1, "input": [
        {"type": "message", "role": "user", "content": "x"}, {"type": "function_call", "call_id": "a", "name": "f", "arguments": t},
        {"type": "function_call_output", "call_id": "a", "output": t}]}),
    "count of tokens": ("/v1/messages/count_tokens", lambda t: {"messages": [{"role": "user", "content": t}]}),
    "many messages": ("/apply-template", lambda t: {"messages": [{"role": "user", "content": t[:8]}] * (len(t) // 40)}),
    "many parts": (CHAT, lambda t: {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": t[:8]}] * (len(t) // 40)}]}),
    "many calls": (CHAT, lambda t: {"max_tokens": 1, "messages": [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(len(t) // 80)]}]}),
    "many tools": (CHAT, lambda t: {"max_tokens": 1, "messages": USER, "tools": [tool(name=f"f{i}")[0] for i in range(len(t) // 110)]}),
    "many items": ("/v1/responses", lambda t: {"max_output_tokens": 1, "input": [{"role": "user", "content": t[:8]}] * (len(t) // 40)}),
    "many turns": ("/v1/messages", lambda t: {"max_tokens": 1, "messages": [{"role": "user", "content": t[:8]}] * (len(t) // 40)}),
    "many prompts": (TEXT, lambda t: {"max_tokens": 1, "prompt": [t[:8]] * (len(t) // 12)}),
    "many inputs": ("/v1/embeddings", lambda t: {"input": [t[:8]] * min(100, len(t) // 12)}),
}


def dumps_text(text):
    return growth.dumps(text)


class Growth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = pathlib.Path(cls.folder.name, "chat.gguf")
        write_chat_model(MODEL, model)
        # A short context: longer prompts are refused as soon as they are tokens, so that computing is no part of the costs.
        cls.server = Server(PROGRAM, model, "-c", "256", "-t", "1", "--slot-save-path", cls.folder.name, "--max-body", "64").wait_ready()
        cls.folder_of_process = pathlib.Path(f"/proc/{cls.server.process.pid}")
        for path, body in BASES.items():  # what is made once
            cls.server.ask(path, body)
        cls.server.ask(TEXT, {**BASES[TEXT], "grammar": 'root ::= "a"'})

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def seconds(self):
        numbers = (self.folder_of_process / "stat").read_text().rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / TICK

    def kilobytes(self, name):
        return int(re.search(name + r":\s+(\d+) kB", (self.folder_of_process / "status").read_text()).group(1))

    def cost(self, path, body):
        (self.folder_of_process / "clear_refs").write_text("5")  # the most memory counts from here
        before, held = self.seconds(), self.kilobytes("VmRSS")
        status = self.server.ask(path, body.encode("utf-8", "replace"), timeout=300)[0]
        self.assertIn(status, (200, 400, 404, 413), path)
        return growth.Cost(self.seconds() - before, 1024 * max(0, self.kilobytes("VmHWM") - held))

    def hold(self, path, place, name, make, size=SIZE):
        if WITHOUT and re.search(WITHOUT, f"{place}: {name}"):
            return
        try:
            found = growth.fault(lambda body: self.cost(path, body), make, size, LIMITS)
        except AssertionError as error:
            found = str(error)
        if found:
            self.faults.append(f"{path} {place}: {name}: {found}")

    def setUp(self):
        self.faults = []
        self.count = 0

    def tearDown(self):
        self.assertEqual(self.faults, [], "\n" + "\n".join(self.faults))

    def values(self, at, every):
        """Every `every`th of all texts and shapes, from a place of their own for each field."""
        of = [(name, lambda size, name=name: growth.text(name, size)) for name in growth.TEXTS]
        of += [(name, shape) for name, shape in growth.SHAPES.items()]
        return of[at % every::every]

    def test_fields(self):
        """Each field of the table, on one of its routes at a time in the short run, with every value in turn."""
        at = 0
        tried = {}
        for path, names in table().items():
            for field in names:
                if not LONG and len(tried.setdefault(field, [])) >= 1:
                    continue
                tried.setdefault(field, []).append(path)
                at += 1
                for name, make in self.values(at, 1 if LONG else 6):
                    self.hold(path, field, name, lambda size: growth.dumps({**BASES[path], field: make(size)}))
        self.assertGreater(len(tried), 100, "the table was not read")

    def test_places(self):
        for at, (place, (path, body)) in enumerate(NESTED.items()):
            of = list(growth.TEXTS) if LONG else list(growth.TEXTS)[at % 3::3]
            if place.startswith("many") and not LONG:
                of = of[:2]
            for name in of:
                self.hold(path, place, name, lambda size: growth.dumps(body(growth.text(name, size))))

    def test_shapes_in_places(self):
        for at, (place, (path, body)) in enumerate({
                "content": ("/apply-template", lambda v: {"messages": [{"role": "user", "content": v}]}),
                "message": (CHAT, lambda v: {"messages": v}),
                "member of a message": (CHAT, lambda v: {"messages": [{"role": "user", "content": "x", "more": v}]}),
                "parameters": (CHAT, lambda v: {"messages": USER, "max_tokens": 1, "tools": tool(parameters=v)}),
                "properties": (CHAT, lambda v: {"messages": USER, "max_tokens": 1, "tools": tool(parameters={"type": "object", "properties": v})}),
                "variable": ("/apply-template", lambda v: {"messages": USER, "chat_template_kwargs": {"mood": v}}),
                "enum": (TEXT, lambda v: schema({"enum": v})),
                "properties of a schema": (TEXT, lambda v: schema({"type": "object", "properties": v})),
                "anyOf": (TEXT, lambda v: schema({"anyOf": v})),
                "definitions": (TEXT, lambda v: schema({"$defs": v, "type": "null"})),
                "input": ("/v1/responses", lambda v: {"input": v, "max_output_tokens": 1}),
                "messages": ("/v1/messages", lambda v: {"messages": v, "max_tokens": 1}),
                "tools": ("/v1/messages", lambda v: {"messages": USER, "tools": v, "max_tokens": 1}),
                "body": (TEXT, lambda v: v)}.items()):
            for name, make in growth.SHAPES.items():
                if LONG or (at + len(name)) % 2 == 0:
                    self.hold(path, place, name, lambda size: growth.dumps(body(make(size))))

    def test_many_objects(self):
        """In a member whose order is kept. Only half a megabyte shows what grows with the square of their number."""
        def body(size):
            return growth.dumps({"messages": [{"role": "user", "content": "x", "more": growth.SHAPES["many objects"](size)}]})

        self.cost(CHAT, body(1 << 20))  # the memory that such a body takes is there again
        self.hold(CHAT, "member of a message", "many objects", body, size=1 << 19)

    def test_heads(self):
        """Long paths, queries and headers, and many of them: answered or refused soon, whatever their size."""
        for head in ("GET /" + "a" * SIZE, "GET /health?" + "a=b&" * (SIZE // 4), "GET /health HTTP/1.1\r\nX-A: " + "b" * SIZE,
                     "GET /health HTTP/1.1\r\n" + "X-A: b\r\n" * (SIZE // 8)):
            before = self.seconds()
            reply = self.server.raw((head + " HTTP/1.1\r\nHost: localhost\r\n\r\n").encode())
            self.assertTrue(not reply or reply.startswith(b"HTTP/1.1 "), reply[:60])
            self.assertLess(self.seconds() - before, LIMITS.factor * LIMITS.seconds)

    def test_memory_comes_back(self):
        """After large requests of each kind the process holds little more than before."""
        for path, field, value in ((TEXT, "prompt", growth.text("words", 8 << 20)), ("/tokenize", "content", growth.text("words", 8 << 20)),
                                   (TEXT, "logit_bias", growth.SHAPES["many keys"](1 << 20)), (CHAT, "messages", growth.SHAPES["many objects"](4 << 20))):
            self.server.ask(path, growth.dumps({**BASES[path], field: value}))
        end = time.monotonic() + 10
        while self.kilobytes("VmRSS") > 200_000 * LIMITS.factor and time.monotonic() < end:
            time.sleep(0.1)
        if not is_sanitized(PROGRAM):
            self.assertLess(self.kilobytes("VmRSS"), 200_000)

    def test_that_it_can_fail(self):
        """The measure finds a quadratic cost, and one that is too high for each byte."""
        limits = growth.Limits()
        self.assertIn("2048 bytes", growth.fault(lambda n: growth.Cost(n * n * 1e-6, 0), lambda size: size, 1024, limits))
        self.assertRegex(growth.fault(lambda n: growth.Cost(0.9 * (n / 2**18)**2, 0), lambda size: size, 2**17, limits), "bytes take 0.2.*bytes 0.9")
        self.assertIn("MiB", growth.fault(lambda n: growth.Cost(0, n * 100_000), lambda size: size, 1024, limits))
        self.assertIsNone(growth.fault(lambda n: growth.Cost(n * 2e-6, n * 100), lambda size: size, 1 << 20, limits))


if __name__ == "__main__":
    unittest.main(verbosity=2)
