"""The program in one session, short enough for a sanitized build: commands, and a server with clients of every kind.

    session_test.py PROGRAM SOURCE_DIR [SECONDS]

Commands run one after the other. Then several clients at once send requests of every kind to one server, each kind at least
once and until SECONDS are over; some leave, some send nonsense. Answers must be those of a server that is alone, and SIGTERM
must end the server while it is busy. A sanitizer that reports something fails the test.
"""

import http.client
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import Server, readable

PROGRAM, SOURCE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
SECONDS = float(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdigit() else 5
MODEL = str(SOURCE / "models/coppice-mini-f16.gguf")
TEXT = (SOURCE / "tests/data/prompt-2k.txt").read_text()[:3000]
METHODS = ["none", "lazyllm:min=0", "ftp:min=0", "sliminfer:layers=4/6/8,keep=256/128/64,min=0", "snapkv:min=0"]
CLIENTS = 6
KEYS = ["first", "second"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}}, "required": ["name"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["days"]}}}
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 6}


def is_report(text):
    return "Sanitizer" in text or "runtime error" in text


class Commands(unittest.TestCase):
    def command(self, *args, code=0):
        done = subprocess.run([PROGRAM, *args], capture_output=True, stdin=subprocess.DEVNULL, timeout=600)
        said = done.stderr.decode()
        self.assertFalse(is_report(said), said)
        self.assertEqual(done.returncode, code, said)
        return done.stdout.decode()

    def test_commands(self):
        self.assertIn("architecture", self.command("inspect", MODEL))
        self.assertIn("lazyllm", self.command("methods"))
        self.command("tokenize", "-m", MODEL, "-p", TEXT)
        with tempfile.TemporaryDirectory() as folder:
            trace = str(pathlib.Path(folder) / "trace.jsonl")
            self.command("run", "-m", MODEL, "-p", TEXT, "-n", "4", "--prune", METHODS[3], "--trace", trace)
            self.command("trace", trace, "-o", str(pathlib.Path(folder) / "trace.html"))
            self.command("inspect", trace, code=1)
        self.command("run", "-m", MODEL, "-p", "Hello", "--prune", "nothing", code=1)
        self.command("run", "-m", MODEL, "--no-such-option", code=2)

    def test_answers(self):
        for method in METHODS:
            out = json.loads(self.command("run", "-m", MODEL, "-p", TEXT, "-n", "4", "--json", "--temp", "0", "--prune", method))
            self.assertEqual(out["generated_tokens"], 4, method)
        text = self.command("run", "-m", MODEL, "-p", "A town as JSON: ", "-n", "40", "--json-schema", json.dumps(SCHEMA))
        self.assertIn('"name"', text)

    def test_interrupted(self):
        running = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-p", "a b " * 4000, "-n", "2000", "-c", "20000"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1].decode()
        self.assertFalse(is_report(said), said)
        self.assertIn(running.returncode, (130, -signal.SIGINT), said)  # the latter before the program sets its handler


class Clients:
    """What clients do, by name. Each action raises where the server errs."""

    def __init__(self, server):
        self.server = server
        self.done, self.errors = {}, []
        self.lock = threading.Lock()
        # Of each kind, the answer and the one without pruning, both of a server that reuses nothing.
        self.expected = {name: [self.answer(name, KEYS[0], cache_prompt=False, **dense)[0] for dense in ({}, {"prune": "none"})]
                         for name in self.bodies()}
        self.actions = [*self.bodies(), *(name for name in dir(self) if name.startswith("do_"))]

    @staticmethod
    def bodies():
        words = "the key is blue " * 20
        chat = [{"role": "user", "content": "Weather in Ulm?"}]
        return {
            **{f"prune {m}": ("/v1/completions", {"prompt": TEXT[:1200], "prune": m}) for m in METHODS},
            "document": ("/v1/completions", {"prompt": TEXT, "prune": METHODS[3]}),
            "scores": ("/v1/completions", {"prompt": ["a b c d", words], "n": 2, "echo": True, "logprobs": 3, "prune": "none"}),
            "schema": ("/v1/completions", {"prompt": "JSON: ", "json_schema": SCHEMA, "max_tokens": 40, "prune": "none"}),
            "regex": ("/v1/completions", {"prompt": words, "guided_regex": "[a-z]{4} [0-9]{2}", "max_tokens": 12, "prune": "none"}),
            "chat": ("/v1/chat/completions", {"messages": chat, "prune": "none"}),
            "tools": ("/v1/chat/completions", {"messages": chat, "tools": [TOOL], "tool_choice": "required",
                                               "parallel_tool_calls": False, "max_tokens": 300, "prune": "none"}),
            "native": ("/completion", {"prompt": words, "prune": "none"}),
        }

    @staticmethod
    def headers(key):
        return {"X-Api-Key": key}

    def answer(self, name, key, stream=False, **more):
        """The answer, and whether it is the unpruned one, because another request has completed the document's read."""
        path, body = self.bodies()[name]
        body = {**GREEDY, **body, **more}
        if stream:
            self.server.stream(path, body, headers=self.headers(key))
            return None
        reply = self.server.good(path, body, headers=self.headers(key))
        if path == "/completion":
            return reply["content"], False
        completed = "read is complete" in (reply.get("prune", {}).get("reason") or "")
        choices = reply["choices"]
        for choice in choices:  # ids differ, and what was computed depends on what was cached
            choice.pop("prune", None)
            for call in choice.get("message", {}).get("tool_calls", []):
                call.pop("id")
        return choices, completed

    def do_texts(self, key, choose):
        self.server.good("/tokenize", {"content": TEXT, "with_pieces": True}, headers=self.headers(key))
        self.server.good("/detokenize", {"tokens": [5, 6, 7]}, headers=self.headers(key))
        self.server.good("/apply-template", {"messages": [{"role": "user", "content": "x</s>"}]}, headers=self.headers(key))

    def do_embeddings(self, key, choose):
        reply = self.server.good("/v1/embeddings", {"input": ["a b c", TEXT[:300]]}, headers=self.headers(key))
        assert len(reply["data"]) == 2, reply

    def do_state(self, key, choose):
        for path in ["/health", "/metrics", "/slots", "/v1/models", "/tokenizer_info", "/"]:
            self.server.good(path, headers=self.headers(key))
        self.server.good("/plan", {"prompt_tokens": 3000, "prune": METHODS[1]}, headers=self.headers(key))

    def do_slots(self, key, choose):
        for action in ["save", "restore", "erase"]:  # of whatever the slot last had, which may be another key's
            status, _, reply = self.server.ask(f"/slots/{choose.randrange(3)}?action={action}", {"filename": f"{key}-a"},
                                               headers=self.headers(key))
            assert status in (200, 400, 404), reply

    def do_nonsense(self, key, choose):
        for body in ["{", '{"prompt": 5}', b"\xff", {"prompt": "a", "temperature": "hot"}, {"prompt": [-1]},
                     {"prompt": "a", "json_schema": {"type": 5}}, {"prompt": "a", "prune": "lazyllm:layers=99"}]:
            status, _, reply = self.server.ask("/v1/completions", body, headers=self.headers(key))
            assert status == 400, reply
        assert self.server.ask("/v1/models")[0] == 401
        assert self.server.raw(b"GET  / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")

    def do_leave(self, key, choose):
        body = json.dumps({"prompt": TEXT, "max_tokens": 200, "stream": choose.random() < 0.5, "ignore_eos": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        plain = self.server.connect()
        plain.sendall(head + body[:choose.choice([len(body), len(body), 20])])
        if readable(plain, choose.random()):
            plain.recv(100)
        plain.close()

    def work(self, number, end):
        choose = random.Random(number)
        key = KEYS[number % 2]
        todo = choose.sample(self.actions, len(self.actions))
        while todo or time.monotonic() < end:
            name = todo.pop() if todo else choose.choice(self.actions)
            try:
                if name.startswith("do_"):
                    getattr(self, name)(key, choose)
                elif number > 1 and choose.random() < 0.5:
                    self.answer(name, key, stream=True)
                else:
                    answer, completed = self.answer(name, key)
                    assert answer == self.expected[name][completed], (name, answer, completed, self.expected[name])
                with self.lock:
                    self.done[name] = self.done.get(name, 0) + 1
            except Exception as error:  # of any kind: the thread's own end would say nothing
                with self.lock:
                    self.errors.append((name, repr(error)))
                return


class Session(unittest.TestCase):
    def test_clients_of_every_kind(self):
        with tempfile.TemporaryDirectory() as home:
            for folder in ["documents", "slots"]:
                (pathlib.Path(home) / folder).mkdir()
            server = Server(PROGRAM, MODEL, "-c", "8192", "-np", "3", "--api-key", ",".join(KEYS), "--complete",
                            "--doc-cache", f"{home}/documents", "--slot-save-path", f"{home}/slots",
                            "--access-log", f"{home}/log").wait_ready()
            try:
                clients = Clients(server)
                end = time.monotonic() + SECONDS
                threads = [threading.Thread(target=clients.work, args=(i, end)) for i in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(clients.errors, [])
                self.assertTrue(all(clients.done.get(name, 0) >= CLIENTS for name in clients.actions), clients.done)
                print(f"{sum(clients.done.values())} actions of {len(clients.actions)} kinds", file=sys.stderr)
                # It ends while it is busy.
                busy = [threading.Thread(target=lambda: self.ask_in_vain(server)) for _ in range(6)]
                for thread in busy:
                    thread.start()
                time.sleep(0.5)
                server.process.send_signal(signal.SIGTERM)
                said = server.process.communicate(timeout=60)[1].decode()
                for thread in busy:
                    thread.join()
                self.assertFalse(is_report(said), said)
                self.assertEqual(server.process.returncode, 0, said)
                self.assertGreater(len(pathlib.Path(f"{home}/log").read_text().splitlines()), CLIENTS * len(clients.actions))
            finally:
                server.process.kill()
                server.process.communicate()

    @staticmethod
    def ask_in_vain(server):
        try:
            server.ask("/v1/completions", {"prompt": TEXT, "max_tokens": 2000, "ignore_eos": True}, headers=Clients.headers(KEYS[0]))
        except (OSError, http.client.HTTPException):
            pass  # it may close the connection before the reply


if __name__ == "__main__":
    unittest.main()
