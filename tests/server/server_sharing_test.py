"""Clients of `coppice serve` beside each other: slow ones, ones that leave, a queue, several prompts at once.

    server_sharing_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import random
import socket
import struct
import threading
import time
import unittest

from server_case import Case, LONG, PROGRAM, PROMPT_2K
from server_support import is_sanitized, readable, reply_is_whole


class Clients(Case):
    """Row 23: clients that are slow, and clients that leave."""
    options = ("--sse-ping-interval", "0.2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        word = cls.server.good("/tokenize", {"content": " the"})["tokens"][0]
        cls.long = {"prompt": [word] * LONG, "max_tokens": 1000, "ignore_eos": True}

    def test_left_in_prefill(self):
        for stream in [False, True]:
            client = self.server.send_only("/v1/completions", {**self.long, "stream": stream})
            self.server.wait_busy()
            client.close()
            left = time.monotonic()
            self.assertLess(self.server.wait_idle() - left, 1)

    def test_left_while_generating(self):
        client = self.server.send_only("/v1/completions", {"prompt": "a", "max_tokens": 15000, "ignore_eos": True, "stream": True})
        self.assertTrue(readable(client, 10))
        client.recv(100)
        client.close()
        self.server.wait_idle(1)

    def test_reset_and_half_sent(self):
        client = self.server.send_only("/v1/completions", self.long)
        self.server.wait_busy()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        self.server.wait_idle(1)
        half = socket.create_connection((self.server.host, self.server.port))
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        half.close()
        self.server.good("/v1/completions", {"prompt": "a", "max_tokens": 1})

    def test_pings_and_slots_in_prefill(self):
        client = self.server.send_only("/v1/completions", {**self.long, "stream": True})
        self.server.wait_busy()
        times = []
        seen = []
        for _ in range(100):
            start = time.monotonic()
            self.server.good("/health")
            times.append(time.monotonic() - start)
            seen.append(self.server.slot().get("n_prompt_tokens_processed", LONG))
        self.assertLess(sorted(times)[98], 0.25)  # an idle machine has it below 0.05
        self.assertEqual(seen, sorted(seen))
        received = b""
        while b":\n\n" not in received:
            self.assertTrue(readable(client, 10))
            received += client.recv(4096)
        self.assertTrue(received.startswith(b"HTTP/1.1 200 OK\r\n"))
        client.close()
        self.server.wait_idle(1)

    def test_slow_readers_and_senders(self):
        slow = []
        for i in range(60):  # heads that never come to an end
            plain = socket.create_connection((self.server.host, self.server.port))
            plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Slow: "[:20 + i % 24])
            slow.append(plain)
        readers = [self.server.send_only("/v1/completions", {"prompt": "a", "max_tokens": 20, "stream": True}) for _ in range(20)]
        self.server.good("/v1/completions", {"prompt": "b", "max_tokens": 2})
        self.server.wait_idle(30)
        for reader in readers:  # one byte at a time for a while, then the rest
            received = b"".join(reader.recv(1) for _ in range(50))
            while b"0\r\n\r\n" not in received:
                received += reader.recv(65536)
            self.assertIn(b"data: [DONE]", received)
            reader.close()
        for plain in slow:
            plain.close()

    def test_many_with_random_departures(self):
        choose = random.Random(7)
        errors = []

        def client(leaves, stream):
            try:
                plain = self.server.send_only("/v1/completions", {"prompt": "Once", "max_tokens": 8, "stream": stream})
                if leaves:
                    time.sleep(choose.random() * 0.5)
                    plain.close()
                    return
                received = b""
                while not reply_is_whole(received) and (part := plain.recv(64)):
                    received += part
                if not received.startswith(b"HTTP/1.1 200"):
                    errors.append(received[:200])
                plain.close()
            except OSError as error:
                errors.append(error)

        before = self.server.memory()
        threads = [threading.Thread(target=client, args=(i % 10 == 0, i % 2 == 0)) for i in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.server.wait_idle(20)
        kept = 256 if is_sanitized(PROGRAM) else 0  # MiB of freed memory that the sanitizer keeps
        self.assertLess(self.server.memory() - before, (64 + kept) << 20)


class Queue(Case):
    options = ("-np", "1")

    def test_left_in_queue(self):
        word = self.server.good("/tokenize", {"content": " the"})["tokens"][0]
        first = self.server.send_only("/v1/completions", {"prompt": [word] * LONG, "max_tokens": 1})
        self.server.wait_busy()
        task = self.server.slot()["id_task"]
        second = self.server.send_only("/v1/completions", {"prompt": "a", "max_tokens": 5})
        deferred = lambda: self.server.metrics()["coppice_requests_deferred"]
        self.server.wait_for(lambda: deferred() == 1)
        second.close()
        self.server.wait_for(lambda: deferred() == 0, 1)
        self.assertEqual(self.server.slot()["id_task"], task)  # the other did not notice
        first.close()
        self.server.wait_idle(1)


class Several(Case):
    """Sequences at once."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.word = cls.server.good("/tokenize", {"content": " the"})["tokens"][0]

    def long(self, tokens=LONG, **fields):
        client = self.server.send_only("/v1/completions", {"prompt": [self.word] * tokens, "max_tokens": 1, **fields})
        self.server.wait_for(lambda: any(s["n_prompt_tokens"] == tokens for s in self.server.slots()))
        return client

    def test_short_prompt_passes_a_long_one(self):
        client = self.long()
        self.server.good("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4})
        self.server.wait_for(lambda: [s["n_prompt_tokens"] for s in self.server.slots()] == [LONG], 1)  # still at it
        self.assertLess(self.server.slot()["n_prompt_tokens_processed"], LONG)
        client.close()

    def test_generation_goes_on_beside_a_prefill(self):
        writer = self.server.send_only("/v1/completions", {"prompt": "Once", "max_tokens": 15000, "ignore_eos": True, "stream": True})
        self.assertTrue(readable(writer, 10))
        reader = self.long()
        start, last, events, gap = time.monotonic(), time.monotonic(), 0, 0
        while time.monotonic() < start + 1:
            self.assertTrue(readable(writer, 5))
            events += writer.recv(1 << 16).count(b"data: ")
            gap, last = max(gap, time.monotonic() - last), time.monotonic()
        self.assertEqual(len(self.server.slots()), 2)
        self.assertGreater(events, 20)
        self.assertLess(gap, 0.5)
        for client in [writer, reader]:
            client.close()

    def test_left_without_its_turn(self):
        first = self.long()
        second = self.long(LONG // 2)  # has the turn until it is done
        first.close()
        left = time.monotonic()
        self.server.wait_for(lambda: [s["n_prompt_tokens"] for s in self.server.slots()] == [LONG // 2], 1)
        self.assertLess(time.monotonic() - left, 1)
        second.close()
        self.server.wait_idle(1)

    def test_many_at_once_answer_as_each_alone(self):
        ids = self.server.good("/tokenize", {"content": PROMPT_2K})["tokens"]
        sliminfer = "sliminfer:layers=4/6/8,keep=512/256/128,min=0"
        bodies = [{"prompt": ids[i:i + 300 + 211 * i % 900], "max_tokens": 3 + i % 7, "seed": i, "logprobs": 3, "ignore_eos": True,
                   "temperature": i % 2, "prune": prune,
                   # Tokens computed ahead are work, so pruned replies, which count it, would depend on the company.
                   "prompt_lookup": 7 if prune == "none" else 0}
                  for i, prune in enumerate(["none", "lazyllm:min=0", sliminfer, "ftp:min=0", "none", sliminfer + "+ftp:min=0",
                                             "random:keep=0.5,min=0", "snapkv:cap=128,min=0", "minference:min=0", "none"])]
        bodies.append({"prompt": ids[:700], "max_tokens": 1, "echo": True, "logprobs": 2, "temperature": 0})

        def ask(body):
            reply = self.server.good("/v1/completions", body)
            return {key: reply.get(key) for key in ["choices", "usage", "prune"]}

        alone = [ask(body) for body in bodies]
        together = [None] * len(bodies)

        def client(i):
            together[i] = ask(bodies[i])

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for i in range(8):  # these come and leave
            leaving = self.server.send_only("/v1/completions", bodies[i])
            time.sleep(0.02 * i)
            leaving.close()
        for thread in threads:
            thread.join()
        for i, (one, other) in enumerate(zip(alone, together)):
            self.assertEqual(one, other, bodies[i]["prune"] if "prune" in bodies[i] else "echo")

    def test_methods_stand_aside_where_they_cannot_win(self):
        reply = self.server.good("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1, "prune": "sliminfer"})
        self.assertFalse(reply["prune"]["active"])
        self.assertIn("tokens", reply["prune"]["reason"])


if __name__ == "__main__":
    unittest.main()
