"""What the system takes away from `coppice serve`, its limits and deadlines, its starts and its end.

    server_faults_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from server_case import CTX, LONG, MODEL, PROGRAM
from chat_model import write_chat_model  # beside the rooms: server_case makes it known
from server_support import Server, is_sanitized, readable

MOST = 30 if is_sanitized(PROGRAM) else 3  # seconds in which a server ends


class Faults(unittest.TestCase):
    """Row 25: what the system takes away."""

    @unittest.skipIf(is_sanitized(PROGRAM), "sanitizers need the address space")
    def test_memory_runs_out(self):
        server = Server(PROGRAM, MODEL, "-c", "120000").wait_ready()
        try:
            word = server.good("/tokenize", {"content": " the"})["tokens"][0]
            short, long = {"prompt": [word] * 100, "max_tokens": 2}, {"prompt": [word] * 110000, "max_tokens": 2}
            server.good("/v1/completions", short)
            hard = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
            for mib in [1, 4, 16, 40]:
                status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
                size = int(re.search(r"VmSize:\s+(\d+) kB", status).group(1)) << 10
                resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + (mib << 20), hard[1]))
                error = self.refused(server, long)
                self.assertEqual(error["type"], "unavailable_error")
                self.assertIn("out of memory", error["message"])
                resource.prlimit(server.process.pid, resource.RLIMIT_AS, hard)
                server.good("/v1/completions", short)
            server.wait_idle(1)
        finally:
            self.assertEqual(server.stop(), 0)

    def refused(self, server, body):
        status, _, reply = server.ask("/v1/completions", body)
        self.assertEqual(status, 503, reply)
        return reply["error"]

    def test_model_cut_short_under_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model.gguf"
            shutil.copy(MODEL, model)
            server = Server(PROGRAM, model).wait_ready()
            os.truncate(model, 1 << 20)
            client = server.send_only("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8})
            self.assertEqual(server.process.wait(30), 1)
            self.assertIn(b"cut short", server.process.stderr.read())
            server.process.stdout.close()
            server.process.stderr.close()
            client.close()

    def test_two_servers_on_one_port(self):
        server = Server(PROGRAM, MODEL).wait_ready()
        try:
            done = subprocess.run([PROGRAM, "serve", "-m", str(MODEL), "--port", str(server.port)], capture_output=True, timeout=20)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"Address already in use", done.stderr)
            server.good("/v1/completions", {"prompt": "a", "max_tokens": 1})
        finally:
            self.assertEqual(server.stop(), 0)


class Limits(unittest.TestCase):
    def test_queue_and_connections(self):
        server = Server(PROGRAM, MODEL, "-np", "1", "--max-queue", "2", "--max-connections", "6").wait_ready()
        try:
            word = server.good("/tokenize", {"content": " the"})["tokens"][0]
            clients = [server.send_only("/v1/completions", {"prompt": [word] * 4000, "max_tokens": 4000, "ignore_eos": True})]
            server.wait_busy()
            for waiting in range(1, 3):
                clients.append(server.send_only("/v1/completions", {"prompt": "a"}))
                server.wait_for(lambda: f"\ncoppice_requests_deferred {waiting}\n" in server.good("/metrics"))
            status, headers, reply = server.ask("/v1/completions", {"prompt": "a"})
            self.assertEqual((status, headers["Retry-After"]), (503, "1"))
            self.assertIn("queue is full", reply["error"]["message"])
            clients += [socket.create_connection((server.host, server.port)) for _ in range(4)]
            last = clients[-1]
            self.assertTrue(readable(last, 5))
            self.assertIn(b"503 Service Unavailable", last.recv(4096))
            for client in clients:
                client.close()
            server.wait_for(lambda: server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200"))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_deadlines(self):
        server = Server(PROGRAM, MODEL, "-c", CTX, "--timeout", "1").wait_ready()
        try:
            clients = [socket.create_connection((server.host, server.port)) for _ in range(3)]
            clients[1].sendall(b"POST /v1/completions HTTP/1.1\r\nX")
            clients[2].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            for client in clients:  # nothing, half a head, half a body
                self.assertTrue(readable(client, 5))
                self.assertEqual(client.recv(100), b"")
                client.close()
            # An answer of megabytes that is not read.
            word = server.good("/tokenize", {"content": " the"})["tokens"][0]
            client = server.send_only("/v1/completions", {"prompt": [word] * 10000, "echo": True, "logprobs": 20, "max_tokens": 1}, 4096)
            server.wait_busy()
            server.wait_idle(60)
            server.wait_for(lambda: "\ncoppice_connections 1\n" in server.good("/metrics"))
            client.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("from-file\n\nsecond\r\n")
            keys.flush()
            server = Server(PROGRAM, MODEL, "--host", "0.0.0.0", "--api-key", "one,two", "--api-key-file", keys.name).wait_ready()
        try:
            server.host = "127.0.0.1"
            self.assertEqual(server.ask("/health")[0], 200)
            for header in [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer onx"}, {"X-Api-Key": ""}]:
                for path, body in [("/v1/models", None), ("/metrics", None), ("/slots", None), ("/v1/completions", {"prompt": "a"}), ("/x", None)]:
                    status, headers, _ = server.ask(path, body, headers=header)
                    self.assertEqual((status, headers.get("WWW-Authenticate")), (401, "Bearer"), (path, header))
            for header in [{"Authorization": "Bearer two"}, {"X-Api-Key": "from-file"}, {"Authorization": "Bearer second"}]:
                self.assertEqual(server.ask("/v1/models", headers=header)[0], 200)
            self.assertEqual(server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")[:12], b"HTTP/1.1 401")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_metrics_of_keys(self):
        """Of several keys, each sees its own counts, and one that has the right to those of all."""
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("a\nb concurrent=9\nwatch all_metrics\n")
            keys.flush()
            server = Server(PROGRAM, MODEL, "-c", CTX, "--api-key-file", keys.name).wait_ready()
        try:
            headers = {key: {"X-Api-Key": key} for key in ("a", "b", "watch")}
            tokens = {key: server.good("/v1/completions", {"prompt": "word " * count, "max_tokens": 2}, headers=headers[key])
                      ["usage"]["prompt_tokens"] for key, count in (("a", 50), ("b", 20))}
            server.good("/v1/embeddings", {"input": "one two"}, headers=headers["b"])
            seen = lambda key, name: server.metrics(headers=headers[key]).get("coppice_" + name)
            for key in ("a", "b"):
                server.wait_for(lambda: seen(key, "prompt_tokens_total") == tokens[key])
                self.assertEqual(seen(key, "queue_seconds_count"), 1)
                self.assertEqual(sum(value for name, value in server.metrics(headers=headers[key]).items()
                                     if name.startswith("coppice_prompts_total")), 1)
                for name in ("connections", "documents_memory_bytes", 'http_requests_total{status="200"}'):
                    self.assertIsNone(seen(key, name), "what the server holds")
            self.assertEqual(seen("a", "embedding_tokens_total"), 0)
            self.assertGreater(seen("b", "embedding_tokens_total"), 0)
            self.assertEqual(seen("watch", "prompt_tokens_total"), sum(tokens.values()))
            self.assertGreater(seen("watch", "documents_memory_bytes"), 0)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_limits_of_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("free\none concurrent=1\nfew per_minute=2\nday tokens_per_day=10 per_minute=100\n")
            keys.flush()
            server = Server(PROGRAM, MODEL, "-c", CTX, "--cache-ram", "0", "--api-key-file", keys.name).wait_ready()
        try:
            def ask(key, path="/v1/completions", **fields):
                status, headers, reply = server.ask(path, {"prompt": "a", "max_tokens": 2, **fields}, headers={"X-Api-Key": key})
                if status == 429:
                    self.assertEqual(reply["error"]["type"], "rate_limit_error")
                    self.assertGreater(int(headers["Retry-After"]), 0)
                return status
            self.assertEqual([ask("few") for _ in range(3)], [200, 200, 429])
            self.assertEqual([ask("day", max_tokens=9, ignore_eos=True) for _ in range(2)], [200, 429])
            self.assertEqual([ask("one") for _ in range(5)], [200] * 5)
            word = {"prompt": [1] * 8000, "max_tokens": 1}
            data = json.dumps(word).encode()
            with socket.create_connection((server.host, server.port)) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Api-Key: one\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                busy = lambda: any(s["is_processing"] for s in server.ask("/slots", headers={"X-Api-Key": "free"})[2])
                server.wait_for(busy)
                self.assertEqual(ask("one"), 429)
                self.assertEqual(ask("free"), 200)
            server.wait_for(lambda: not busy())
            server.wait_for(lambda: ask("one") == 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_bad_starts(self):
        def fails(*options, says, model=MODEL):
            done = subprocess.run([PROGRAM, "serve", "-m", str(model), *options], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(says, done.stderr.decode())
            self.assertEqual(done.stderr.count(b"\n"), 1)
        fails("--host", "0.0.0.0", says="--api-key")
        fails("--host", "no.such.host.invalid", says="--host no.such.host.invalid")
        fails("--api-key-file", "/nonexistent", says="/nonexistent")
        fails("--api-key", ",", says="no key")
        fails("--port", "0", "--prune", "nothing", says="nothing")
        fails("--port", "0", model="/nonexistent.gguf", says="/nonexistent.gguf")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            fails("--port", str(taken.getsockname()[1]), says="Address already in use")

    def test_default_prune(self):
        server = Server(PROGRAM, MODEL, "--prune", "random:keep=0.5,min=0", "--temp", "0").wait_ready()
        try:
            reply = server.good("/v1/completions", {"prompt": "a " * 100, "max_tokens": 1})
            self.assertTrue(reply["prune"]["active"])
            self.assertFalse(server.good("/v1/completions", {"prompt": "a " * 100, "max_tokens": 1, "prune": "none"})["prune"]["active"])
            scored = server.good("/v1/completions", {"prompt": "a " * 100, "max_tokens": 1, "echo": True, "logprobs": 1})
            self.assertFalse(scored["prune"]["active"])
            self.assertIn("densely", scored["prune"]["reason"])
        finally:
            self.assertEqual(server.stop(), 0)

    def test_handlers_end_when_their_clients_leave(self):
        server = Server(PROGRAM, MODEL).wait_ready()
        try:
            text = {"content": "a b " * (3 << 20), "with_pieces": True}
            start = time.monotonic()
            server.good("/tokenize", text)
            alone = time.monotonic() - start
            for client in [server.send_only("/tokenize", text) for _ in range(8)]:
                client.close()
            start = time.monotonic()
            server.good("/tokenize", {"content": "a"})
            self.assertLess(time.monotonic() - start, alone)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_ends_cleanly_in_every_phase(self):
        for number in [signal.SIGTERM, signal.SIGINT]:
            server = Server(PROGRAM, MODEL, "-c", CTX, "-np", "1").wait_ready()
            word = server.good("/tokenize", {"content": " the"})["tokens"][0]
            computing = server.send_only("/v1/completions", {"prompt": [word] * LONG})
            server.wait_busy()
            waiting = server.send_only("/v1/completions", {"prompt": "a"})
            idle = socket.create_connection((server.host, server.port))
            server.wait_for(lambda: "\ncoppice_requests_deferred 1\n" in server.good("/metrics"))
            # Texts that keep every handler for seconds, and more of them in the queue.
            texts = [server.send_only("/tokenize", {"content": "a b " * (3 << 20), "with_pieces": True}) for _ in range(6)]
            time.sleep(1)
            start = time.monotonic()
            self.assertEqual(server.stop(number, timeout=60), 0)
            self.assertLess(time.monotonic() - start, MOST)
            for client in texts:
                client.close()
            for client in [computing, waiting]:
                self.assertIn(b"503 Service Unavailable", client.recv(4096))
                client.close()
            idle.close()

    def test_ends_soon_while_it_is_attacked(self):
        server = Server(PROGRAM, MODEL, "-np", "4").wait_ready()
        clients = []
        try:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
            for _ in range(16):  # bodies that are announced and begun
                clients.append(socket.create_connection((server.host, server.port)))
                clients[-1].sendall(head + b"Content-Length: 16000000\r\n\r\n{")
            for _ in range(16):  # chunks that never end
                clients.append(socket.create_connection((server.host, server.port)))
                clients[-1].sendall(head + b"Transfer-Encoding: chunked\r\n\r\n100\r\n{")
            for _ in range(100):  # half a head
                clients.append(socket.create_connection((server.host, server.port)))
                clients[-1].sendall(b"POST / HT")
            # Replies of megabytes that nobody reads.
            echo = {"prompt": [5] * 1000, "max_tokens": 1, "n": 64, "echo": True, "logprobs": 5, "stream": True}
            clients += [server.send_only("/v1/completions", echo) for _ in range(2)]
            # Texts and templates that keep the handlers.
            keys = {f"key{i}": i for i in range(4000)}
            messages = [{"role": "user", "content": f"part {i}", "protect": True} for i in range(64)]
            clients += [server.send_only("/v1/chat/completions", {"messages": messages, "chat_template_kwargs": keys, "prune": "lazyllm"})
                        for _ in range(4)]
            clients += [server.send_only("/tokenize", {"content": "a b " * (3 << 20), "with_pieces": True}) for _ in range(4)]
            clients += [server.send_only("/v1/completions", {"prompt": [7] * LONG, "n": 4}) for _ in range(2)]
            time.sleep(1)
            start = time.monotonic()
            self.assertEqual(server.stop(timeout=60), 0)
            self.assertLess(time.monotonic() - start, MOST)
        finally:
            for client in clients:
                client.close()
            server.process.kill()

    def test_ends_soon_in_every_other_state(self):
        """Templates and forms that take long, replies that nobody reads, slots and documents that are written, completed reads."""
        endless = "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i * j %}{% endfor %}{% endfor %}"
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        forms = [{"grammar": "\n".join(["root ::= a0"] + [f"a{i} ::= a{i + 1} a{i + 1}" for i in range(50)] + ['a50 ::= "x"'])},
                 {"grammar": 'root ::= root root root | "a" | ""', "max_tokens": 1000},
                 {"json_schema": {"type": "string", "pattern": "^(((a{99}){99}){99})$"}}, {"guided_regex": "(a|b)*a(a|b){40}"}]
        pieces = {"content": "a b " * (1 << 18), "with_pieces": True}
        states = {
            "handlers": [("/v1/chat/completions", chat)] * 6 + [("/tokenize", pieces, 4096)] * 12,
            "forms": [("/v1/completions", {"prompt": "x", "ignore_eos": True, **form}) for form in forms * 2],
            "slots busy": [("/v1/embeddings", {"input": [[7] * LONG] * 2}),
                           ("/v1/completions", {"prompt": "x", "max_tokens": 9000, "ignore_eos": True, "n": 4}),
                           ("/v1/completions", {"prompt": [7] * LONG, "max_tokens": 1, "echo": True, "logprobs": 20, "n": 4})],
            "slots saved": [(f"/slots/{i % 4}?action={action}", {"filename": f"f{i}"})
                            for i in range(12) for action in ["save", "restore"]],
            "completing": []}  # the document that each of these servers is asked about first
        for name, requests in states.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as home:
                model = pathlib.Path(home) / "model.gguf"
                write_chat_model(MODEL, model, endless)
                for folder in ["documents", "slots"]:
                    (pathlib.Path(home) / folder).mkdir()
                server = Server(PROGRAM, model, "-c", CTX, "-np", "8", "--complete", "--prune", "sliminfer:layers=4/6/8,keep=512/256/128,min=0",
                                "--doc-cache", f"{home}/documents", "--slot-save-path", f"{home}/slots").wait_ready()
                clients = []
                try:
                    server.good("/v1/completions", {"prompt": [9] * 12000, "max_tokens": 1})
                    clients += [server.send_only(*request) for request in requests]
                    if name == "completing":
                        server.wait_for(lambda: any(slot.get("is_completing") for slot in server.slots()), 60)
                    else:
                        time.sleep(0.5)
                    start = time.monotonic()
                    self.assertEqual(server.stop(timeout=30), 0)
                    self.assertLess(time.monotonic() - start, MOST, name)
                finally:
                    for client in clients:
                        client.close()
                    server.process.kill()


if __name__ == "__main__":
    unittest.main()
