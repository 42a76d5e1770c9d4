"""Errors in the form of the API that a client speaks, whatever refuses, and what else Anthropic's clients read.

    server_errors_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import contextlib
import json
import pathlib
import re
import tempfile
import unittest

from server_case import MODEL, PROGRAM
from chat_case import CONTEXT, Case, TEMPLATE, user
from gguf_edit import edit
from server_support import Server


class AnthropicsErrors(Case):
    """Clients act on the errors of the API that they speak: all of /v1/messages in Anthropic's form."""

    options = ("--api-key", "key", "--max-body", "1", "--max-queue", "1", "--parallel", "1")
    KEY = {"x-api-key": "key"}
    BODY = {"max_tokens": 2, "messages": [user()]}

    def fails(self, path, body=None, headers=KEY, method=None):
        status, reply_headers, reply = self.server.ask(path, body, headers=headers, method=method)
        if isinstance(reply, str):
            reply = json.loads(reply)
        self.assertEqual(set(reply), {"type", "error", "request_id"}, reply)
        self.assertEqual((reply["type"], set(reply["error"])), ("error", {"type", "message"}))
        self.assertRegex(reply["request_id"], "^req_[0-9a-f]{16}$")
        self.assertEqual(reply_headers.get("request-id"), reply["request_id"])
        return status, reply["error"]["type"], reply["error"]["message"]

    def test_whatever_refuses(self):
        for path, body, headers, expected in [
                ("/v1/messages", b"{", self.KEY, (400, "invalid_request_error")), ("/v1/messages", b"[]", self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", {}, self.KEY, (400, "invalid_request_error")), ("/v1/messages/count_tokens", {}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", self.BODY, {"x-api-key": "wrong"}, (401, "authentication_error")), ("/v1/messages", self.BODY, {}, (401, "authentication_error")),
                ("/v1/messages/batches", self.BODY, self.KEY, (404, "not_found_error")), ("/v1/messages/", self.BODY, self.KEY, (404, "not_found_error")),
                ("/v1/messages", {**self.BODY, "max_tokens": -1}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", {**self.BODY, "max_tokens": 0}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", {**self.BODY, "max_tokens": 1.5}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", {**self.BODY, "temperature": "hot"}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", {**self.BODY, "stop_sequences": [1]}, self.KEY, (400, "invalid_request_error")),
                ("/v1/messages", "x" * (2 << 20), self.KEY, (413, "request_too_large")),
                ("/v1/messages", self.BODY, {**self.KEY, "Content-Encoding": "gzip"}, (415, "invalid_request_error")),
                ("/v1/models/none", None, {**self.KEY, "anthropic-version": "2023-06-01"}, (404, "not_found_error")),
                ("/v1/complete", self.BODY, {**self.KEY, "anthropic-version": "2023-06-01"}, (404, "not_found_error"))]:
            self.assertEqual(self.fails(path, body, headers)[:2], expected)
        self.assertEqual(self.fails("/v1/messages", method="GET")[:2], (405, "invalid_request_error"))
        self.assertIn("stop_sequences: ", self.fails("/v1/messages", {**self.BODY, "stop_sequences": [1]})[2])
        raw = self.server.raw(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: key\r\nX-Long: " + b"a" * 20000 + b"\r\n\r\n")
        self.assertIn(b"431", raw.split(b"\r\n")[0])
        self.assertIn(b'{"type":"error"', raw)

    def test_other_routes_keep_openais_form(self):
        for path, body in [("/v1/chat/completions", {}), ("/v1/responses", {"input": "x", "max_output_tokens": "x"}), ("/v1/messagesx", {})]:
            _, _, reply = self.server.ask(path, body, headers=self.KEY)
            self.assertEqual(set(reply["error"]), {"message", "type", "param", "code"})
        self.assertIn("max_output_tokens: ", self.server.ask("/v1/responses", {"input": "x", "max_output_tokens": "x"}, headers=self.KEY)[2]["error"]["message"])

    def test_prompts_that_are_too_long(self):
        long = {"max_tokens": 2, "messages": [user("word " * 6000)]}
        count = self.server.good("/v1/messages/count_tokens", long, headers=self.KEY)["input_tokens"]
        self.assertGreater(count, CONTEXT)
        for stream in (False, True):
            status, kind, message = self.fails("/v1/messages", {**long, "stream": stream})
            self.assertEqual((status, kind, message), (400, "invalid_request_error", f"prompt is too long: {count} tokens > {CONTEXT} maximum"))
        for path, body in [("/v1/chat/completions", long), ("/v1/responses", {"input": long["messages"]}), ("/v1/completions", {"prompt": "word " * 6000})]:
            status, _, reply = self.server.ask(path, body, headers=self.KEY)
            error = reply["error"]
            self.assertEqual((status, error["code"], error["type"], error["n_ctx"]), (400, "context_length_exceeded", "exceed_context_size_error", CONTEXT))
            self.assertIn("exceeds the available context size", error["message"])
        counted = self.server.good("/v1/chat/completions/input_tokens", {"messages": long["messages"]}, headers=self.KEY)
        self.assertEqual(counted["input_tokens"], count)

    def test_models(self):
        listed = self.server.good("/v1/models", headers={**self.KEY, "anthropic-version": "2023-06-01"})
        (model,) = listed["data"]
        self.assertEqual((listed["has_more"], listed["first_id"], listed["last_id"], listed["object"]), (False, model["id"], model["id"], "list"))
        self.assertEqual((model["type"], model["display_name"], model["max_input_tokens"], model["meta"]["n_ctx"]), ("model", model["id"], CONTEXT, CONTEXT))
        self.assertRegex(model["created_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertNotIn("has_more", self.server.good("/v1/models", headers=self.KEY))

    def test_structured_outputs(self):
        schema = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"], "additionalProperties": False}
        for fields in ({"output_config": {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}},
                       {"output_format": {"type": "json_schema", "schema": schema}}):
            reply = self.server.good("/v1/messages", {"max_tokens": 100, "messages": [user()], "temperature": 1, **fields}, headers=self.KEY)
            self.assertIn(json.loads(reply["content"][0]["text"]), [{"kind": "a"}, {"kind": "b"}])
            self.assertEqual(reply.get("ignored_parameters"), ["output_config.effort"] if "output_config" in fields else None)
        for wrong in ({"format": {"type": "json_schema"}}, {"format": {"type": "xml"}}, 3):
            self.assertIn("output_config", self.fails("/v1/messages", {**self.BODY, "output_config": wrong})[2])
        for nothing in (None, {}, {"format": None}):
            self.server.good("/v1/messages", {**self.BODY, "output_config": nothing}, headers=self.KEY)

    def test_a_full_queue(self):
        body = json.dumps({"max_tokens": 1000, "ignore_eos": True, "temperature": 0, "messages": [user("word " * 600)], "stream": True}).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: key\r\nContent-Length: {len(body)}\r\n\r\n"
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(self.server.connect()) for _ in range(8)]  # one computes, one waits
            for stream in streams:
                stream.sendall(head.encode() + body)
            replies = [stream.recv(65536) for stream in streams]
        refused = [reply.decode() for reply in replies if b" 503 " in reply.split(b"\r\n")[0]]
        self.assertTrue(refused, replies)
        for reply in refused:
            self.assertIn("Retry-After: 1", reply)
            error = json.loads(reply.split("\r\n\r\n")[1])
            self.assertEqual((error["type"], error["error"]["type"]), ("error", "overloaded_error"))


class ErrorsInStreams(unittest.TestCase):
    """A server that stops ends the streams that have begun with an error."""

    def last_events(self, path, body, begun=b"delta"):
        """(name, data) of each event of a stream that the server ends when `begun` has come."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "m.gguf"
            edit(MODEL, model, texts={"tokenizer.chat_template": TEMPLATE})
            server = Server(PROGRAM, model, "-c", "20000", "--sse-ping-interval", "0.02").wait_ready()
            with server.connect() as stream:
                data = json.dumps({**body, "stream": True, "ignore_eos": True, "temperature": 0}).encode()
                stream.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
                received = b""
                while begun not in received:
                    part = stream.recv(65536)
                    self.assertTrue(part, received)
                    received += part
                server.process.terminate()
                while part := stream.recv(65536):
                    received += part
            server.process.wait(30 * server.patience)
            self.assertEqual(server.stop(), 0)
        text = received.decode()
        return re.findall(r"event: (\S+)\ndata: (.*)\n", text)

    def test_anthropics(self):
        for text, begun in [("x", b"delta"), ("word " * 15000, b"\n:\n\n")]:  # while it answers, and while it reads the prompt
            events = self.last_events("/v1/messages", {"max_tokens": 4000, "messages": [user(text)]}, begun)
            name, data = events[-1]
            error = json.loads(data)
            self.assertEqual((name, error["type"], error["error"]["type"]), ("error", "error", "overloaded_error"))
            self.assertIn("request_id", error)
            self.assertEqual(len(events) == 1, text != "x", events)

    def test_openais(self):
        for text, begun in [("x", b"delta"), ("word " * 15000, b"\n:\n\n")]:
            failed, error = self.last_events("/v1/responses", {"max_output_tokens": 4000, "input": text}, begun)[-2:]
            self.assertEqual((failed[0], error[0]), ("response.failed", "error"))
            response = json.loads(failed[1])["response"]
            self.assertEqual((response["status"], response["error"]["code"]), ("failed", "unavailable_error"))
            self.assertIn("message", json.loads(error[1])["error"])


if __name__ == "__main__":
    unittest.main()
