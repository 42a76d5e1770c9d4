"""What users of other servers expect of `coppice serve`: embeddings, CORS, ChatML, llama.cpp's options, an end in good order.

    server_interface_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import base64
import math
import signal
import struct
import subprocess
import threading
import time
import unittest

from server_case import Case, MODEL, PROGRAM
from server_support import Server, patience

TEXTS = ["The key of the door is blue.", "A door", "One morning, when Gregor Samsa woke from troubled dreams"]


class Embeddings(Case):
    def embed(self, text, **fields):
        reply = self.server.good("/v1/embeddings", {"input": text, **fields})
        self.assertEqual([item["index"] for item in reply["data"]], list(range(len(reply["data"]))))
        return [item["embedding"] for item in reply["data"]]

    def test_norms_and_forms(self):
        reply = self.server.good("/v1/embeddings", {"input": TEXTS, "model": "any"})
        self.assertEqual(reply["object"], "list")
        self.assertEqual(reply["model"], "coppice-mini-f16")
        tokens = sum(len(self.server.good("/tokenize", {"prompt": text})["tokens"]) for text in TEXTS)
        self.assertEqual(reply["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        width = self.server.good("/v1/models")["data"][0]["meta"]["n_embd"]
        for item in reply["data"]:
            self.assertEqual(item["object"], "embedding")
            self.assertEqual(len(item["embedding"]), width)
            self.assertAlmostEqual(math.hypot(*item["embedding"]), 1, places=5)
        coded = self.embed(TEXTS, encoding_format="base64")
        for item, text in zip(reply["data"], coded):
            values = struct.unpack(f"<{width}f", base64.b64decode(text, validate=True))
            self.assertEqual([struct.unpack("<f", struct.pack("<f", v))[0] for v in item["embedding"]], list(values))
        plain = self.server.good("/embedding", {"content": TEXTS[0], "embd_normalize": -1})
        self.assertEqual(list(plain[0]), ["index", "embedding"])
        (vector,) = plain[0]["embedding"]
        size = math.hypot(*vector)
        for got, want in zip(reply["data"][0]["embedding"], vector):
            self.assertAlmostEqual(got, want / size, places=5)

    def test_every_text_is_as_if_alone(self):
        for pooling in ["mean", "last"]:
            together = self.embed(TEXTS, pooling=pooling)
            self.assertEqual(together, [self.embed(text, pooling=pooling)[0] for text in TEXTS])
            ids = [self.server.good("/tokenize", {"prompt": text})["tokens"] for text in TEXTS]
            self.assertEqual(together, self.embed(ids, pooling=pooling))
        self.assertNotEqual(self.embed(TEXTS[0], pooling="mean"), self.embed(TEXTS[0], pooling="last"))

    def test_every_tokens_own(self):
        (item,) = self.server.good("/embeddings", {"input": TEXTS[0], "pooling": "none"})
        ids = self.server.good("/tokenize", {"prompt": TEXTS[0]})["tokens"]
        self.assertEqual(len(item["embedding"]), len(ids))
        (last,) = self.server.good("/embeddings", {"input": TEXTS[0], "pooling": "last", "embd_normalize": -1})
        for got, want in zip(item["embedding"][-1], last["embedding"][0]):
            self.assertAlmostEqual(got, want, delta=1e-2)  # the same row, among others
        self.refused("/v1/embeddings", {"input": "a", "pooling": "none"}, param="pooling")
        self.refused("/embeddings", {"input": "word " * 19000, "pooling": "none"}, param="input")

    def test_beside_a_generation(self):
        alone = self.embed(TEXTS)
        answers = []
        body = {"prompt": "a " * 2000, "max_tokens": 50, "temperature": 0, "ignore_eos": True}
        thread = threading.Thread(target=lambda: answers.append(self.server.good("/v1/completions", body)))
        thread.start()
        while thread.is_alive():
            self.assertEqual(self.embed(TEXTS), alone)
        thread.join()
        self.assertEqual(answers[0]["choices"][0]["text"], self.server.good("/v1/completions", body)["choices"][0]["text"])

    def test_refusals(self):
        for fields, param in [({}, "input"), ({"input": []}, "input"), ({"input": ["a"] * 2049}, "input"), ({"input": [[]]}, "input"),
                              ({"input": [[10**9]]}, "input"), ({"input": "a", "pooling": "cls"}, "pooling"),
                              ({"input": "a", "encoding_format": "float16"}, "encoding_format"), ({"input": "a", "dimensions": 8}, "dimensions"),
                              ({"input": "a", "embd_normalize": -2}, "embd_normalize"), ({"input": {"image": 1}}, "input")]:
            self.refused("/v1/embeddings", fields, param=param)
        error = self.refused("/v1/embeddings", {"input": "word " * 30000}, kind="exceed_context_size_error")
        self.assertGreater(error["n_prompt_tokens"], error["n_ctx"])

    def test_a_client_that_leaves(self):
        client = self.server.send_only("/v1/embeddings", {"input": ["word " * 8000] * 100})
        self.server.wait_busy()
        client.close()
        self.server.wait_idle(2)

    def test_metrics(self):
        before = self.server.metrics()["coppice_embedding_tokens_total"]
        count = self.server.good("/v1/embeddings", {"input": TEXTS})["usage"]["prompt_tokens"]
        self.server.wait_for(lambda: self.server.metrics()["coppice_embedding_tokens_total"] == before + count)


class Pages(Case):
    options = ("--cors-origins", "https://app.example", "--allowed-hosts", "llm.local")

    def preflight(self, origin):
        return self.server.ask("/v1/chat/completions", method="OPTIONS", headers={
            "Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-y"})

    def test_a_site_that_is_listed(self):
        status, headers, _ = self.preflight("https://app.example")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization, x-y")
        for path, body, expected in [("/v1/completions", {"prompt": "a", "max_tokens": 1}, 200), ("/v1/completions", {}, 400), ("/health", None, 200)]:
            got, headers, _ = self.server.ask(path, body, headers={"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"})
            self.assertEqual(got, expected)
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
            self.assertEqual(headers["Vary"], "Origin")

    def test_other_sites(self):
        status, headers, _ = self.preflight("https://other.example")
        self.assertEqual(status, 200)
        self.assertFalse([name for name in headers if name.startswith("Access-Control")])
        self.refused("/v1/completions", {"prompt": "a"}, 403, headers={"Origin": "https://other.example"})
        self.assertNotIn("Access-Control-Allow-Origin", self.server.ask("/health")[1])

    def test_the_next_request_of_a_connection(self):
        with self.server.connection() as connection:
            for origin, expected in [("https://app.example", True), (None, False), ("https://app.example", True)]:
                connection.request("GET", "/health", headers={"Origin": origin} if origin else {})
                reply = connection.getresponse()
                reply.read()
                self.assertEqual(reply.getheader("Access-Control-Allow-Origin") is not None, expected)

    def test_hosts(self):
        for host, expected in [("llm.local:8080", 200), ("other.local", 403)]:
            self.assertEqual(self.server.ask("/props", headers={"Host": host})[0], expected)


class ChatMl(Case):
    """The bundled model has no chat template."""

    def test_stands_in(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        prompt = self.server.good("/apply-template", {"messages": messages})["prompt"]
        self.assertEqual(prompt, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(self.server.good("/props")["chat_template"], "")
        chat = self.server.good("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0})
        text = self.server.good("/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0, "parse_special": False})
        self.assertEqual(chat["choices"][0]["message"]["content"], text["choices"][0]["text"])

    def test_an_answer_that_has_begun(self):
        begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once upon"}]
        start = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOnce upon"
        for fields, end in [({}, ""), ({"continue_final_message": True}, ""), ({"continue_final_message": True, "add_generation_prompt": False}, ""),
                            ({"continue_final_message": False}, "<|im_end|>\n<|im_start|>assistant\n"), ({"add_generation_prompt": False}, "<|im_end|>\n"),
                            ({"add_generation_prompt": True}, "<|im_end|>\n<|im_start|>assistant\n")]:
            self.assertEqual(self.server.good("/apply-template", {"messages": begun, **fields})["prompt"], start + end, fields)
        chat = self.server.good("/v1/chat/completions", {"messages": begun, "max_tokens": 4, "temperature": 0, "verbose": True})
        self.assertTrue(chat["__verbose"]["prompt"].endswith("Once upon"), chat)
        self.refused("/apply-template", {"messages": [*begun, {"role": "assistant", "content": "more"}]}, param="messages")
        self.refused("/apply-template", {"messages": begun, "continue_final_message": True, "add_generation_prompt": True},
                     param="continue_final_message")

    def test_options(self):
        for options, prompt in [(("--chat-template", "chatml"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
                                (("--chat-template", "{{ messages[0].content }}!", "--jinja", "-fa", "on", "-b", "64"), "Hi!")]:
            server = Server(PROGRAM, MODEL, *options).wait_ready()
            self.assertEqual(server.good("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})["prompt"], prompt)
            self.assertNotEqual(server.good("/props")["chat_template"], "")
            self.assertEqual(server.stop(), 0)
        for options, said in [(("--chat-template", "{{ oops"), "line 1"), (("--chat-template", "llama9"), "chatml"),
                              (("--chat-template-file", "/nowhere"), "/nowhere"), (("-hf", "a/b"), "downloads nothing"),
                              (("-ctk", "q4_0"), "q4_0"), (("-ctk", "q8_0", "-ctv", "f32"), "one type"),
                              (("--packed-ram", "-1"), "--packed-ram"), (("--packed-ram", "some"), "--packed-ram")]:
            done = subprocess.run([PROGRAM, "serve", "-m", str(MODEL), "--port", "0", *options], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertIn(said, done.stderr)


class Sampling(Case):
    def ask(self, **fields):
        body = {"prompt": "One, two, three, one, two, three, one, two, three,", "max_tokens": 40, "temperature": 0, "return_tokens": True, **fields}
        return self.server.good("/v1/completions", body)["choices"][0]

    def test_min_tokens(self):
        free = self.ask()
        first = free["tokens"][0]
        self.assertEqual(self.ask(stop_token_ids=[first])["tokens"], [])
        for count in [1, 5]:
            held = self.ask(stop_token_ids=[first], min_tokens=count)["tokens"]
            self.assertGreaterEqual(len(held), count)
            self.assertNotIn(first, held[:count])
        self.refused("/v1/completions", {"prompt": "a", "min_tokens": 2, "guided_regex": "a"}, param="min_tokens")

    def test_dry_breaks_repetitions(self):
        def repeats(tokens):
            grams = [tuple(tokens[i:i + 5]) for i in range(len(tokens) - 4)]
            return len(grams) - len(set(grams))

        free = self.ask(ignore_eos=True, max_tokens=120)["tokens"]
        dry = self.ask(ignore_eos=True, max_tokens=120, dry_multiplier=5, dry_allowed_length=2, dry_sequence_breakers=[])["tokens"]
        self.assertGreater(repeats(free), repeats(dry))
        self.assertEqual(self.ask(dry_multiplier=0, dry_base=3)["tokens"], self.ask()["tokens"])


    def test_gauges(self):
        client = self.server.send_only("/v1/completions", {"prompt": "a", "max_tokens": 15000, "ignore_eos": True})
        self.server.wait_for(lambda: self.server.metrics()["coppice_sequence_tokens"] > 50)
        self.assertGreater(self.server.metrics()["coppice_sequence_tokens_usage_ratio"], 0)
        client.close()
        self.server.wait_idle()
        self.assertEqual(self.server.metrics()["coppice_sequence_tokens"], 0)

    def test_truncated(self):
        server = Server(PROGRAM, MODEL, "-c", "64").wait_ready()
        ask = lambda **fields: server.good("/completion", {"prompt": "One, two,", "ignore_eos": True, **fields})
        self.assertEqual([ask(n_predict=4)["truncated"], ask()["truncated"], ask(n_predict=500)["truncated"]], [False, True, True])
        self.assertIsInstance(ask(n_predict=4)["has_new_line"], bool)
        self.assertEqual(server.stop(), 0)

    def test_logit_bias_of_texts(self):
        likely = self.ask(max_tokens=1)["text"]
        self.assertNotEqual(self.ask(max_tokens=1, logit_bias=[[likely, False]])["text"], likely)
        self.assertNotEqual(self.ask(max_tokens=1, logit_bias={likely: -100})["text"], likely)


class Drain(unittest.TestCase):
    def test_requests_that_have_begun_are_answered(self):
        server = Server(PROGRAM, MODEL, "-c", "20000", "--cache-ram", "0", "--drain", str(60 * patience(PROGRAM))).wait_ready()
        body = {"prompt": "a " * 3000, "max_tokens": 30, "temperature": 0, "ignore_eos": True}
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(server.ask("/v1/completions", body))) for _ in range(6)]
        for thread in threads:
            thread.start()
        def begun():
            metrics = server.metrics()
            return metrics["coppice_requests_processing"] + metrics["coppice_requests_deferred"] == len(threads)
        server.wait_for(begun)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: server.ask("/health")[0] == 503)
        status, _, reply = server.ask("/v1/completions", body)
        self.assertEqual(status, 503)
        self.assertIn("finishes", reply["error"]["message"])
        for thread in threads:
            thread.join()
        self.assertEqual([status for status, _, _ in replies], [200] * 6)
        self.assertEqual(server.process.wait(10 * server.patience), 0)
        server.process.stdout.close()
        server.process.stderr.close()

    def test_the_deadline(self):
        server = Server(PROGRAM, MODEL, "-c", "20000", "--drain", "1").wait_ready()
        client = server.send_only("/v1/completions", {"prompt": "a", "max_tokens": 15000, "ignore_eos": True})
        server.wait_busy()
        begun = time.monotonic()
        self.assertEqual(server.stop(timeout=30), 0)
        self.assertGreater(time.monotonic() - begun, 1)
        self.assertIn(b"503", client.recv(1000))
        client.close()


if __name__ == "__main__":
    unittest.main()
