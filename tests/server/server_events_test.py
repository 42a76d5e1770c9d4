"""What `coppice serve` tells routers: KV events, rendered prompts, gauges.

    server_events_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import random
import resource
import socket
import subprocess
import tempfile
import time
import unittest

from kv_subscriber import Connection, Router
from server_case import CTX, GREEDY, MODEL, PROGRAM, Case, Server
from server_support import has_events


class Announcing:
    """A server with events, and a router that follows them."""

    def __init__(self, *options, topic=None, key=None):
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        extra = ["--kv-events-topic", topic] if topic else []
        self.server = Server(PROGRAM, MODEL, "-c", "4096", "--kv-events", "tcp://127.0.0.1:0", *extra, *options).wait_ready()
        line = self.server.process.stdout.readline().decode()
        assert line.startswith("KV events on tcp://127.0.0.1:"), line
        self.endpoint = line.split()[-1]
        self.router = Router(self.endpoint, (topic or "").encode()).wait_first()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.router.close()
        assert self.server.stop() == 0

    def ask(self, tokens, **fields):
        """Tokens that were taken from the cache."""
        body = {"prompt": list(tokens), "max_tokens": 1, **GREEDY, **fields}
        reply = self.server.good("/v1/completions", body, headers=self.headers)
        return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def document(seed, tokens):
    numbers = random.Random(seed)
    return [numbers.randrange(300, 900) for _ in range(tokens)]


@unittest.skipUnless(has_events(PROGRAM), "this program was built without libzmq")
class Events(unittest.TestCase):
    def test_what_is_announced_is_reused(self):
        """The longest announced beginning of any prompt is what a request then takes, to a block. Memory holds a part
        of the documents, so many leave again."""
        with Announcing("--cache-ram", "16") as a:
            numbers = random.Random(3)
            documents = [document(i, numbers.randrange(40, 700)) for i in range(12)]
            documents += [d[:len(d) // 2] + document(100 + i, 300) for i, d in enumerate(documents)]
            reused = 0
            for step in range(80):
                known = numbers.choice(documents)
                prompt = known + document(1000 + step, numbers.choice([3, 20]))
                announced = a.router.announced(prompt)
                cached = a.ask(prompt)
                # An entry is not cut at blocks; its last token, at least, is computed anew.
                self.assertGreaterEqual(cached, min(announced, len(prompt) - 1), step)
                self.assertLess(cached, announced + 16, step)
                reused += announced > 0
            self.assertGreater(reused, 10)
            kinds = {event["type"] for event in a.router.events}
            self.assertEqual(kinds, {"AllBlocksCleared", "BlockStored", "BlockRemoved"})

    def test_what_serves_nobody_else_is_not_announced(self):
        with Announcing() as a:
            salted, plain, uncached = document(1, 300), document(2, 300), document(3, 300)
            a.ask(salted, cache_salt="mine")
            a.ask(uncached, cache_prompt=False)
            a.ask(plain)
            self.assertEqual([a.router.announced(tokens) for tokens in (salted, plain, uncached)], [0, 288, 0])
            self.assertEqual(self.stored(a.router), plain[:288], "nothing of the others was ever sent")

    def stored(self, router):
        router.settle()
        return [t for event in router.events if event["type"] == "BlockStored" for t in event["token_ids"]]

    def test_documents_of_other_keys_are_not_announced(self):
        """A server with two keys left its documents in the folder. The next one has one key, and events."""
        with tempfile.TemporaryDirectory() as folder:
            options = ("--doc-cache", folder, "--doc-cache-exit", "5")
            theirs, own = document(1, 400), document(2, 400)
            two = Server(PROGRAM, MODEL, "-c", "4096", *options, "--api-key", "a,b").wait_ready()
            for key in "ab":
                two.good("/v1/completions", {"prompt": theirs, "max_tokens": 1}, headers={"Authorization": f"Bearer {key}"})
            self.assertEqual(two.stop(), 0)
            for key in ("a", None):
                with Announcing(*options, *(["--api-key", key] if key else []), key=key) as a:
                    self.assertEqual(self.stored(a.router), [] if key else own, "nothing of theirs was ever sent")
                    self.assertEqual(a.ask(own + [301]), 0 if key else 400)
                    self.assertEqual(self.stored(a.router)[:400], own)

    def test_methods_that_act_on_long_prompts_only(self):
        """A short prompt leaves a dense run's entry, which no long prompt takes over."""
        with Announcing("--prune-when", "always", "--prune", "sliminfer:layers=3/5,keep=0.5/0.25,min=500") as a:
            short, long = document(1, 300), document(2, 600)
            a.ask(short)
            a.ask(long)
            self.assertEqual([a.router.announced(tokens) for tokens in (short, long)], [0, 592])
            self.assertEqual(a.ask(short + document(3, 400)), 0)
            self.assertGreaterEqual(a.ask(long + document(3, 400)), 592)

    def test_methods_that_read_with_a_second_model(self):
        """They drop tokens before layer 0, so their prompts take nothing over."""
        with Announcing("--prune-when", "always", "--prune", f"selective:model={MODEL},min=0") as a:
            dense = document(1, 300)
            a.ask(dense, prune="none")
            self.assertEqual(a.router.announced(dense), 0)
            self.assertEqual(a.ask(dense + [301] * 20), 0)
            self.assertEqual(a.server.metrics()["coppice_documents_memory_blocks"], 0)

    def test_the_default_method_decides(self):
        """A dense run's entry cannot serve a pruned request, but a pruned run's entry serves both."""
        with Announcing("--prune-when", "always", "--prune", "sliminfer:layers=3/5,keep=0.5/0.25,min=0") as a:
            dense, pruned = document(1, 600), document(2, 600)
            a.ask(dense, prune="none")
            self.assertEqual(a.router.announced(dense), 0)
            self.assertEqual(a.ask(dense + [301] * 20), 0)
            a.ask(pruned)
            self.assertEqual(a.router.announced(pruned), 592)
            self.assertGreaterEqual(a.ask(pruned + [301] * 20), 592)

    def test_files_and_the_next_server(self):
        with tempfile.TemporaryDirectory() as folder:
            options = ("--doc-cache", folder, "--doc-cache-exit", "5")
            first, second = document(1, 400), document(2, 400)
            with Announcing(*options) as a:
                a.ask(first)
                a.ask(second)
                self.assertEqual(a.router.announced(first, "GPU"), 400)
            with Announcing(*options) as a:
                self.assertEqual([a.router.announced(first, medium) for medium in ("GPU", "DISK")], [0, 400])
                self.assertEqual(a.ask(first + [301, 302]), 400)
                self.assertEqual([a.router.announced(first, medium) for medium in ("GPU", "DISK")], [400, 0])
                self.assertEqual(a.router.announced(second, "DISK"), 400)

    def test_erased_documents_are_taken_back(self):
        with Announcing("--parallel", "1") as a:
            tokens = document(1, 300)
            a.ask(tokens)
            self.assertEqual(a.router.announced(tokens), 288)
            a.server.good("/slots/0?action=erase", {})
            self.assertEqual(a.router.announced(tokens), 0)

    def test_topics_and_late_subscribers(self):
        with Announcing(topic="kv@pod@model") as a:
            a.ask(document(1, 300))
            a.router.settle()
            self.assertEqual(a.router.topics, {b"kv@pod@model"})
            late = Router(a.endpoint, b"kv@").wait_first()
            self.assertEqual(late.announced(document(1, 300)), 288)
            late.close()
            other = Router(a.endpoint, b"other")
            self.assertEqual(other.announced(document(1, 300)), 0)
            other.close()
            self.assertEqual(a.router.announced(document(1, 300)), 288)

    def test_bad_peers_do_not_hold_the_server(self):
        with Announcing() as a:
            host, port = a.endpoint.removeprefix("tcp://").split(":")
            silent = socket.create_connection((host, int(port)))
            for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\xff" * 5000):
                with socket.create_connection((host, int(port))) as peer:
                    peer.sendall(data)
            stuck = [Connection(a.endpoint) for _ in range(20)]  # subscribe and never read
            for i in range(30):
                a.ask(document(i, 1000))
            self.assertEqual(a.router.announced(document(29, 1000)), 992)
            for connection in stuck:
                connection.close()
            silent.close()

    def test_peers_that_take_every_file(self):
        """Nobody new is served meanwhile; then all is as before."""
        with Announcing() as a:
            resource.prlimit(a.server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
            host, port = a.endpoint.removeprefix("tcp://").split(":")
            peers = [socket.create_connection((host, int(port)), timeout=5) for _ in range(100)]
            time.sleep(0.5)
            self.assertIsNone(a.server.process.poll())
            for peer in peers:
                peer.close()
            a.ask(document(1, 300))
            self.assertEqual(a.router.announced(document(1, 300)), 288)

    def refusal(self, *options):
        done = subprocess.run([PROGRAM, "serve", "-m", str(MODEL), "--port", "0", *options], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_options(self):
        here = ("--kv-events", "tcp://127.0.0.1:0")
        self.assertIn("kv_events_open", self.refusal("--kv-events", "tcp://0.0.0.0:0"))
        self.assertIn("--kv-events-replay", self.refusal(*here, "--kv-events-replay", "tcp://*:1"))
        self.assertIn("--kv-events", self.refusal("--kv-events", "5557"))
        self.assertIn("one API key", self.refusal(*here, "--api-key", "a,b"))
        self.assertIn("--cache-ram", self.refusal(*here, "--cache-ram", "0"))
        self.assertIn("cache_prompt", self.refusal(*here, "--no-cache-prompt"))
        self.assertIn("--kv-events", self.refusal("--kv-events-topic", "x"))
        self.assertIn("--kv-events-topic", self.refusal(*here, "--kv-events-topic", "x" * 300))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assertIn("cannot listen", self.refusal("--kv-events", f"tcp://127.0.0.1:{taken.getsockname()[1]}"))


class Render(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, MODEL, "-c", CTX, "--cache-ram", "64", "--alias", 'a "model"\\').wait_ready()

    def test_prompts_are_those_of_the_route(self):
        for prompt, fields in [("Once upon a time", {}), ("Once", {"add_special_tokens": False}), ([5, 6, 7], {}),
                               (["one", "two words"], {}), ([[5, 6], [7]], {}), ([5, " mixed ", 6], {}), ("a</s>b", {}),
                               ("a</s>b", {"parse_special": False}), ("Once", {"echo": True, "n": 3})]:
            body = {"prompt": prompt, "max_tokens": 0, **fields}
            rendered = self.server.good("/v1/completions/render", body)
            answer = self.server.good("/v1/completions", {**body, "return_prompt_pieces": True, "n": 1, "echo": False})
            self.assertEqual([list(one) for one in rendered], [["token_ids"]] * len(rendered))
            self.assertEqual(sum(len(one["token_ids"]) for one in rendered), answer["usage"]["prompt_tokens"], prompt)
        self.assertEqual(self.server.good("/v1/completions/render", {"prompt": [[5, 6], [7]]}),
                         [{"token_ids": [5, 6]}, {"token_ids": [7]}])
        text = "Once upon a time"
        self.assertEqual(self.server.good("/v1/completions/render", {"prompt": text})[0]["token_ids"],
                         self.server.good("/tokenize", {"prompt": text})["tokens"])

    def test_chats_are_those_of_the_route(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi </s>"}]
        for fields in ({}, {"add_generation_prompt": False}, {"tools": [{"type": "function", "function": {"name": "f"}}]}):
            body = {"messages": messages, "max_tokens": 0, **fields}
            rendered = self.server.good("/v1/chat/completions/render", body)
            self.assertEqual(list(rendered), ["token_ids"])
            answer = self.server.good("/v1/chat/completions", body)
            self.assertEqual(len(rendered["token_ids"]), answer["usage"]["prompt_tokens"])
        text = self.server.good("/apply-template", {"messages": messages[:1]})["prompt"]
        self.assertEqual(self.server.good("/v1/chat/completions/render", {"messages": messages[:1]})["token_ids"],
                         self.server.good("/v1/completions/render", {"prompt": text})[0]["token_ids"])

    def test_refuses_what_the_route_refuses(self):
        for path, good in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
            for bad in ({"max_tokens": -2}, {"temperature": "hot"}, {"best_of": 3}, {"prune": "no such method"}, {"prompt": 5, "messages": 5}):
                expected = self.server.ask(path, {**good, **bad})
                self.assertEqual(expected[0], 400)
                self.assertEqual(self.server.ask(path + "/render", {**good, **bad})[::2], expected[::2], (path, bad))
            self.refused(path + "/render", "{", 400)
            self.refused(path + "/render", None, 405, method="GET")
        self.refused("/v1/completions/render", {"prompt": [1] * 20001}, 400, "prompt", "exceed_context_size_error")
        self.refused("/v1/completions/render", {"prompt": [10**6]}, 400, "prompt")

    def test_gauges(self):
        labels = r'engine="0",model_name="a \"model\"\\"'
        metrics = self.server.metrics()
        for ours, theirs in (("requests_processing", "num_requests_running"), ("requests_deferred", "num_requests_waiting"),
                             ("sequence_tokens_usage_ratio", "kv_cache_usage_perc")):
            self.assertEqual(metrics["coppice_" + ours], 0)
            self.assertEqual(metrics[f"vllm:{theirs}{{{labels}}}"], 0)
        blocks = int(metrics["coppice_documents_memory_blocks"])
        self.assertEqual(metrics[f'vllm:cache_config_info{{block_size="16",{labels},num_gpu_blocks="{blocks}"}}'], 1)
        # 64 MiB hold so many blocks: one document of as many tokens fits, and is what the gauge of bytes says.
        tokens = 1600
        before = self.server.metrics()["coppice_documents_memory_bytes"]
        self.server.good("/v1/completions", {"prompt": document(1, tokens), "max_tokens": 1})
        held = self.server.metrics()["coppice_documents_memory_bytes"] - before
        self.assertAlmostEqual(blocks / ((64 << 20) / (held / (tokens / 16))), 1, delta=0.01)
        body = {"prompt": document(2, 15000), "max_tokens": 1}
        plain = self.server.send_only("/v1/completions", body)
        self.server.wait_busy()
        busy = self.server.metrics()
        self.assertEqual(busy[f"vllm:num_requests_running{{{labels}}}"], 1)
        self.server.wait_for(lambda: 0 < self.server.metrics()[f"vllm:kv_cache_usage_perc{{{labels}}}"] < 1)
        plain.close()


class Keys(Case):
    @classmethod
    def setUpClass(cls):
        cls.keys = tempfile.NamedTemporaryFile("w")
        cls.addClassCleanup(cls.keys.close)
        cls.keys.write("one per_minute=2\n")
        cls.keys.flush()
        cls.options = ("--api-key-file", cls.keys.name)
        super().setUpClass()

    def setUp(self):
        pass  # needs a key

    def test_render_needs_the_key_and_counts(self):
        for path, body in (("/v1/completions/render", {"prompt": "x"}), ("/v1/chat/completions/render", {"messages": []})):
            self.assertEqual(self.server.ask(path, body)[0], 401)
        headers = {"Authorization": "Bearer one"}
        got = [self.server.ask("/v1/completions/render", {"prompt": "x"}, headers=headers)[0] for _ in range(3)]
        self.assertEqual(got, [200, 200, 429])


if __name__ == "__main__":
    unittest.main(verbosity=2)
