"""What `coppice serve` says of requests that are wrong: fields, bodies, HTTP, texts that are hard to tokenize.

    server_bad_input_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import re
import socket
import time
import unittest

from server_case import Case, PROGRAM
from server_support import is_sanitized, reply_is_whole


class BadInput(Case):
    """Rows 17 and 19 to 21 of the table of bad inputs."""

    def growth(self, ask):
        """The most memory that the server takes while `ask` runs, beyond what it takes before."""
        process = pathlib.Path(f"/proc/{self.server.process.pid}")
        (process / "clear_refs").write_text("5")  # the peak so far is forgotten, proc(5)
        before = self.server.memory()
        ask()
        return (int(re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text()).group(1)) << 10) - before

    def test_chunked_in_any_case(self):
        for coding in ("chunked", "CHUNKED", "Chunked"):
            reply = self.server.raw(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: {coding}\r\n\r\n"
                                    '10\r\n{"content": "x"}\r\n0\r\n\r\n'.encode())
            self.assertTrue(reply.startswith(b"HTTP/1.1 200 "), reply)

    def test_fields(self):
        for name, value in [("n_predict", -5), ("n_predict", 2**31), ("n", 10**6), ("top_k", -2), ("min_tokens", -1),
                            ("temperature", "hot"), ("best_of", 3), ("suffix", "x"), ("grammar", "root ::= x")]:
            self.refused("/v1/completions", {"prompt": "a", name: value}, param=name)
        for keep in ["0", "-1", "nan", "1e400", "2"]:
            self.refused("/v1/completions", {"prompt": "a", "prune": f"ftp:eta={keep}"}, param="prune")
        for prune in ["nothing", "lazyllm+nothing", "ftp:never=1", "sdtp:file=/etc/passwd", "selective:model=/etc/passwd",
                      "specprefill:draft=/etc/passwd", "llmlingua2:model=/etc",
                      {"method": "sdtp", "file": "/etc/passwd"}]:
            self.refused("/v1/completions", {"prompt": "a", "prune": prune}, param="prune")
        for name in ["protect", "question"]:
            for spans in [5, "1:2", {}, [5], [[1]], [[1, 2, 3]], [["1", 2]], [[-1, 2]], [[1.5, 2]], [[5, 1]], [[0, 1 << 62]],
                          [[0, 10**30]], [[0, 3]], [[0, 1]] * 4097]:
                error = self.refused("/v1/completions", {"prompt": [1, 2], "prune": {"spec": "ftp", name: spans}}, param="prune." + name)
                self.assertNotIn("\n", error["message"])
        self.refused("/v1/completions", {"prompt": [1, 2], "prune": {"spec": "ftp", "question": [[1, 1]]}}, param="prune.question")
        self.refused("/v1/completions", {"prompt": [-1]}, param="prompt")
        self.refused("/v1/completions", {"prompt": [1 << 28]}, param="prompt")
        self.refused("/v1/completions", {"prompt": []}, param="prompt")
        self.assertIn("empty", self.refused("/v1/completions", {"prompt": "", "add_special_tokens": False})["message"])

    def test_bodies(self):
        before = self.server.memory()
        for body in ["[" * 60000, '{"prompt": ' + "[" * 60000, '{"prompt": "a", "prompt": "b"}', "{", "", "null", "[]",
                     '{"prompt": "a", "top_p": 1e400}', '{"prompt": "a", "top_p": NaN}', b'{"prompt": "\xff"}',
                     b'{"prompt": "a"}\0', '{"prompt": "\\ud800"}']:
            self.refused("/v1/completions", body)
        self.refused("/v1/completions", " " * (17 << 20), 413)
        self.refused("/v1/completions", b"\x1f\x8b" + b"\0" * 100, 415, headers={"Content-Encoding": "gzip"})
        self.refused("/v1/completions", "{}", 415, headers={"Transfer-Encoding": "gzip, chunked"})
        self.refused("/v1/completions", "[" + "1," * (7 << 20) + "1]")  # 14 MiB that would take 240 as values
        self.assertLess(self.server.memory() - before, 400 << 20)

    @unittest.skipIf(is_sanitized(PROGRAM), "sanitizers keep what is freed")
    def test_memory_of_answers(self):
        """What a token becomes on its way out must not decide how much memory a body of the allowed size takes."""
        text = "a b " * (1 << 20)
        def tokenize():
            status, _, reply = self.server.ask("/tokenize", {"content": text, "with_pieces": True})
            self.assertEqual((status, reply["count"]), (200, 2 << 20 | 1))
        def echo():
            self.refused("/v1/completions", {"prompt": text, "echo": True}, kind="exceed_context_size_error")
        # The body in three forms, 8 MiB of ids, and a reply of 54 MiB where there is one.
        self.assertLess(self.growth(tokenize), 112 << 20)
        self.assertLess(self.growth(echo), 64 << 20)

    @unittest.skipIf(is_sanitized(PROGRAM), "sanitizers keep what is freed")
    def test_memory_is_given_back(self):
        self.server.good("/tokenize", {"content": "a"})
        before = self.server.memory()
        for _ in range(3):
            self.server.good("/v1/completions", '{"prompt": "p", "max_tokens": 1, "metadata": [0' + ",{}" * 350000 + "]}")
            self.server.good("/tokenize", {"content": "a b " * (1 << 20), "with_pieces": True})
        self.server.wait_for(lambda: self.server.memory() - before < 64 << 20)

    def test_http(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        for request, status in [
            (head + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nxx\r\n0\r\n\r\n", b"400"),
            (head + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", b"400"),
            (head + b"Content-Length: -1\r\n\r\n", b"400"),
            (head + b"Content-Length: 99999999999999999999\r\n\r\n", b"400"),
            (head + b"Content-Length: 1073741824\r\n\r\n", b"413"),
            (head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
            (head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
            (b"GET /health HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n", b"431"),
            (b"GET /health HTTP/9.9\r\n\r\n", b"400"),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 64, b"400"),  # TLS
            (b"GET  /health HTTP/1.1\r\n\r\n", b"400"),
        ]:
            reply = self.server.raw(request)
            self.assertEqual(reply[:12], b"HTTP/1.1 " + status, (request[:120], reply[:200]))
            self.assertIn(b'{"error":', reply)
        self.assertEqual(self.server.good("/health"), {"status": "ok"})

    def test_folded_headers(self):
        """Proxies differ in whether a line that begins with a space goes on with the one before (RFC 9112, 5.2)."""
        body = b'{"content": "Hello"}'
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
        length = b"%d" % len(body)
        for lines in [b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: " + length, b"Content-Length: 0\r\n " + length,
                      b"Content-Length: " + length + b"\r\n\t, " + length, b"Transfer-Encoding: chun\r\n ked",
                      b"Content-Length: 0\r\nTransfer-Encoding:\r\n chunked", b"X: a\r\n b\r\nContent-Length: " + length,
                      b"Content-Length: " + length + b"\r\nX: a\r\n\t"]:
            reply = self.server.raw(head + lines + b"\r\n\r\n" + body)
            self.assertEqual(reply[:12], b"HTTP/1.1 400", (lines, reply[:200]))
            self.assertEqual(reply.count(b"HTTP/1.1 "), 1, lines)
            self.assertRegex(reply, b"folded|this is not HTTP: bad (Content-Length|Transfer-Encoding)", lines)
        with self.server.connect() as plain:  # a packet for each byte
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in head + b"X: a\r\n b\r\n\r\n":
                plain.sendall(bytes([byte]))
                time.sleep(0.001)
            reply = b""
            while not reply_is_whole(reply) and (part := plain.recv(65536)):
                reply += part
            self.assertIn(b"folded", reply)
        # A body may have such lines, also in the same packet as the head.
        body = b'{"content":\r\n "Hello"}'
        reply = self.server.raw(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(reply.startswith(b"HTTP/1.1 200"), reply)
        self.assertTrue(self.server.raw(b"GET /health HTTP/1.1\r\n Host: x\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 400"))

    def test_chunked_body_and_expect(self):
        body = b'{"content": "Hello"}'
        chunked = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
        reply = self.server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
        self.assertIn(b'"tokens":', reply)
        reply = self.server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                                % len(body) + body)
        self.assertTrue(reply.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), reply)
        body = b'{"prompt": "a", "stream": true, "max_tokens": 2}'
        old = self.server.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertIn(b"data: [DONE]\n\n", old)
        self.assertNotIn(b"chunked", old)

    def test_pipelined_requests(self):
        reply = self.server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5 + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual(reply.count(b'{"status":"ok"}'), 6)

    def test_hard_texts(self):
        for text in ["Z" * 131072, "A" * 43000, "\n" * 1000000, "\0" * 1000, "e" + "\u0301" * 500000]:
            start = time.monotonic()
            self.server.good("/tokenize", {"content": text})
            self.assertLess(time.monotonic() - start, 30)


if __name__ == "__main__":
    unittest.main()
