"""`coppice serve` from outside: routes, streams, bad input, clients that are slow or leave, and its end.

    server_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import Server, readable, write_chat_model

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
MODEL = SOURCE / "models/coppice-mini-f16.gguf"
PROMPT_2K = (SOURCE / "tests/data/prompt-2k.txt").read_text()
ANSWER_2K = (SOURCE / "tests/data/prompt-2k.answer").read_text().strip()
GREEDY = {"temperature": 0}
LONG = 16000  # tokens of a prompt that takes seconds
CTX = "20000"
LAYERS = 10


def run_json(*args):
    done = subprocess.run([PROGRAM, "run", "-m", str(MODEL), "--json", "--temp", "0", *args], capture_output=True,
                          stdin=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)


class Case(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        # Without the document cache (server_cache_test.py), so that every prompt takes its time.
        cls.server = Server(PROGRAM, MODEL, "-c", CTX, "--cache-ram", "0", *cls.options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, code

    def setUp(self):
        self.server.wait_idle()

    def refused(self, path, body, status=400, param=None, kind=None, **kwargs):
        got, _, reply = self.server.ask(path, body, **kwargs)
        self.assertEqual(got, status, reply)
        error = reply["error"]
        self.assertEqual(error["code"], status)
        if param is not None:
            self.assertEqual(error["param"], param, error)
            self.assertIn(param.split(".")[0], error["message"])
        if kind is not None:
            self.assertEqual(error["type"], kind)
        return error


class Answers(Case):
    def test_completion_is_that_of_the_command(self):
        reply = self.server.good("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 8, **GREEDY})
        alone = run_json("-p", PROMPT_2K, "-n", "8")
        self.assertIn(ANSWER_2K, alone["text"])
        choice = reply["choices"][0]
        self.assertEqual(choice["text"], alone["text"])
        self.assertEqual(choice["finish_reason"], alone["finish_reason"])
        self.assertIsNone(choice["logprobs"])
        self.assertEqual(reply["object"], "text_completion")
        self.assertEqual(reply["model"], "coppice-mini-f16")
        usage = reply["usage"]
        self.assertEqual(usage["prompt_tokens"], alone["prompt_tokens"])
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 0})
        self.assertEqual(reply["timings"]["prompt_n"], alone["prompt_tokens"])
        self.assertNotIn("prune", reply)

    def test_pruned_answer_and_ledger(self):
        spec = "sliminfer:layers=4/6/8,keep=1024/512/256,revive=none,min=0"
        alone = run_json("-p", PROMPT_2K, "-n", "4", "--prune", spec)["prune"]
        as_object = {"method": "sliminfer", "layers": [4, 6, 8], "keep": [1024, 512, 256], "revive": "none", "min": 0}
        for prune in [spec, {"spec": spec}, as_object]:
            reply = self.server.good("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 4, "prune": prune, **GREEDY})
            self.assertTrue(reply["prune"]["active"])
            for key in ["spec", "kept_per_layer", "ffn_rows_per_layer", "flops", "kv_bytes"]:
                self.assertEqual(reply["prune"][key], alone[key], key)
            self.assertIn(ANSWER_2K[:2], reply["choices"][0]["text"])
        protected = self.server.good("/v1/completions", {
            "prompt": PROMPT_2K, "max_tokens": 1, "prune": {"spec": spec, "protect": [[10, 900]]}, **GREEDY})["prune"]
        self.assertGreater(protected["kept_per_layer"][8], alone["kept_per_layer"][8])
        # A pruned request leaves nothing behind for the next.
        dense = self.server.good("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 8, **GREEDY})
        self.assertEqual(dense["choices"][0]["text"], run_json("-p", PROMPT_2K, "-n", "8")["text"])

    def test_prompts_in_every_form(self):
        texts = ["Once upon a time", "The secret"]
        ids = [self.server.good("/tokenize", {"prompt": t})["tokens"] for t in texts]
        body = {"max_tokens": 5, **GREEDY}
        single = [self.server.good("/v1/completions", {"prompt": t, **body})["choices"][0]["text"] for t in texts]
        for prompt in [texts, ids, [texts[0], ids[1]]]:
            reply = self.server.good("/v1/completions", {"prompt": prompt, **body})
            self.assertEqual([c["text"] for c in reply["choices"]], single)
            self.assertEqual([c["index"] for c in reply["choices"]], [0, 1])
        self.assertEqual(reply["usage"]["prompt_tokens"], len(ids[0]) + len(ids[1]))

    def test_several_answers_and_seeds(self):
        body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.5, "top_k": 0, "seed": 5}
        three = [c["text"] for c in self.server.good("/v1/completions", {**body, "n": 3})["choices"]]
        self.assertEqual(len(set(three)), 3)
        self.assertEqual(three, [c["text"] for c in self.server.good("/v1/completions", {**body, "n": 3})["choices"]])
        self.assertEqual(three[0], self.server.good("/v1/completions", body)["choices"][0]["text"])
        events = self.server.stream("/v1/completions", {**body, "n": 3})
        streamed = ["", "", ""]
        finished = []
        for event in events[:-1]:
            for choice in event["choices"]:
                streamed[choice["index"]] += choice["text"]
                if choice["finish_reason"]:
                    finished.append(choice["index"])
        self.assertEqual(streamed, three)
        self.assertEqual(sorted(finished), [0, 1, 2])

    def test_stream_equals_the_whole(self):
        body = {"prompt": PROMPT_2K, "max_tokens": 8, "logprobs": 2, **GREEDY}
        whole = self.server.good("/v1/completions", body)["choices"][0]
        events = self.server.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        usage = events[-2]
        self.assertEqual(usage["choices"], [])
        self.assertEqual(usage["usage"]["completion_tokens"], 8)
        chunks = [e["choices"][0] for e in events[:-2]]
        self.assertEqual("".join(c["text"] for c in chunks), whole["text"])
        for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"]:
            self.assertEqual(sum((c["logprobs"][key] for c in chunks if c["logprobs"]), []), whole["logprobs"][key], key)
        self.assertEqual([c["finish_reason"] for c in chunks], [None] * (len(chunks) - 1) + [whole["finish_reason"]])
        self.assertIn("timings", events[-3])

    def test_stop_strings(self):
        body = {"prompt": "Once upon a time", "max_tokens": 24, **GREEDY}
        text = self.server.good("/v1/completions", body)["choices"][0]["text"]
        stop = text[9:12]
        for form in [stop, ["never there", stop]]:
            reply = self.server.good("/v1/completions", {**body, "stop": form})["choices"][0]
            self.assertEqual(reply["text"], text[:text.index(stop)])
            self.assertEqual(reply["finish_reason"], "stop")
            events = self.server.stream("/v1/completions", {**body, "stop": form})
            self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), reply["text"])
        self.assertEqual(self.server.good("/v1/completions", {**body, "stop": "never there"})["choices"][0]["text"], text)

    def test_progress(self):
        events = self.server.stream("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 2, "return_progress": True})
        progress = [e["prompt_progress"] for e in events[:-1] if "prompt_progress" in e]
        self.assertGreater(len(progress), 1)
        done = [p["processed"] for p in progress]
        self.assertEqual(done, sorted(set(done)))
        self.assertEqual(done[-1], progress[-1]["total"])
        first = next(i for i, e in enumerate(events) if e["choices"][0]["text"])
        self.assertTrue(all("prompt_progress" not in e for e in events[first:-1]))

    def test_characters_are_never_cut(self):
        # Sampled wildly, a byte-level vocabulary writes parts of characters.
        for seed in range(4):
            body = {"prompt": "\u00e9\u20ac", "max_tokens": 40, "temperature": 50, "top_k": 0, "top_p": 1, "min_p": 0,
                    "seed": seed, "ignore_eos": True}
            whole = self.server.good("/v1/completions", body)["choices"][0]["text"]
            events = self.server.stream("/v1/completions", body)
            self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), whole)

    def test_n_predict_zero_and_context_edges(self):
        zero = self.server.good("/v1/completions", {"prompt": "a b c", "max_tokens": 0, "echo": True})
        self.assertEqual(zero["choices"][0]["text"], "a b c")
        self.assertEqual(zero["usage"]["completion_tokens"], 0)
        word = self.server.good("/tokenize", {"content": " the"})["tokens"][0]
        context = int(CTX)
        full = self.server.good("/v1/completions", {"prompt": [word] * context, "max_tokens": 4, "prune": "random:keep=0.01,min=0"})
        self.assertEqual((full["usage"]["completion_tokens"], full["choices"][0]["finish_reason"]), (0, "length"))
        error = self.refused("/v1/completions", {"prompt": [word] * (context + 1)}, kind="exceed_context_size_error")
        self.assertEqual((error["n_prompt_tokens"], error["n_ctx"]), (context + 1, context))


class Depths(Case):
    """How deep each token was computed, layer by layer and in sum."""

    @staticmethod
    def members(lengths):
        return [t for i, n in enumerate(lengths) if i % 2 == 0 for t in range(sum(lengths[:i]), sum(lengths[:i]) + n)]

    def layers_of(self, spec, total):
        """What the progress events say, as the tokens kept and run by each layer, and the account at the end."""
        events = self.server.stream("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 6, "prune": spec, "return_progress": True,
                                                        "return_prune_depth": True, "return_prompt_pieces": True, **GREEDY})[:-1]
        pieces = [e["prompt_pieces"] for e in events if "prompt_pieces" in e]
        self.assertEqual(len(pieces), 1)
        self.assertEqual(len(pieces[0]), total)
        self.assertEqual("".join(pieces[0]).removeprefix("<s>").strip(), PROMPT_2K.strip())
        told = [layer for e in events for layer in e.get("prompt_layers", [])]
        self.assertGreater(sum("prompt_layers" in e for e in events), 1, "while it runs")
        self.assertEqual([layer["layer"] for layer in told], list(range(LAYERS)))
        kept, ffn = [], []
        for layer in told:
            kept.append(self.members(layer["kept"]) if "kept" in layer else kept[-1])
            ffn.append(self.members(layer["ffn"]) if "ffn" in layer else kept[-1])
        return kept, ffn, events[-1]["prune"]

    def test_layer_by_layer_and_in_sum(self):
        total = self.server.good("/tokenize", {"prompt": PROMPT_2K})["count"]
        for spec in ["none", "lazyllm:layers=4/6/8,keep=0.5,revive=none,min=0", "ftp:dense=4,min=0", "random:keep=0.5,min=0"]:
            kept, ffn, prune = self.layers_of(spec, total)
            self.assertEqual([len(k) for k in kept], prune["kept_per_layer"], spec)
            self.assertEqual([len(f) for f in ffn], prune["ffn_rows_per_layer"], spec)
            depths = [depth for depth, count in prune["depth"] for _ in range(count)]
            sums = [0] * total
            for layer in kept:
                for token in layer:
                    sums[token] += 1
            self.assertEqual(depths, sums, spec)
            self.assertNotIn("final_depth", prune)
            self.assertEqual("ffn_depth" in prune, spec.startswith("ftp"), spec)

    def test_what_came_back_counts(self):
        spec = "lazyllm:layers=4/6/8,keep=0.5,min=0"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "run.jsonl")
            run_json("-p", PROMPT_2K, "-n", "12", "--ignore-eos", "--prune", spec, "--trace", str(file))
            header, *lines = [json.loads(line) for line in file.read_text().splitlines()]
        total = header["prompt_tokens"]
        depths = [0] * total

        def count(ranges):
            for part in filter(None, ranges.split(",")):
                first, _, last = part.partition("-")
                for token in range(int(first), min(total, int(last or first) + 1)):
                    depths[token] += 1

        for line in lines:
            if "layer" in line:
                kept = line.get("kept", kept if line["layer"] else None)
                count(kept)
            for event in line.get("events", []):
                if event["kind"] == "revived":
                    count(event["positions"])
        prune = self.server.good("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 12, "ignore_eos": True, "prune": spec,
                                                     "return_prune_depth": True, **GREEDY})["prune"]
        self.assertGreater(prune["revived"], 0)
        self.assertEqual([depth for depth, tokens in prune["final_depth"] for _ in range(tokens)], depths)
        self.assertEqual(sum(depth * tokens for depth, tokens in prune["depth"]), sum(prune["kept_per_layer"]))
        self.assertGreater(sum(depths), sum(prune["kept_per_layer"]))

    def test_each_answer_has_its_own(self):
        texts = ["Once upon a time", "The secret"]
        reply = self.server.good("/v1/completions", {"prompt": texts, "max_tokens": 2, "n": 2, "return_prune_depth": True,
                                                     "return_prompt_pieces": True})
        for choice, text in zip(reply["choices"], [texts[0]] * 2 + [texts[1]] * 2):
            self.assertEqual("".join(choice["prompt_pieces"]).removeprefix("<s>").strip(), text)
            self.assertEqual(choice["prune"]["depth"], [[LAYERS, len(choice["prompt_pieces"])]])
        plain = self.server.good("/v1/completions", {"prompt": texts[0], "max_tokens": 2})
        self.assertNotIn("prune", plain)
        self.assertNotIn("prompt_pieces", plain["choices"][0])
        self.refused("/v1/completions", {"prompt": "a", "return_prune_depth": 1}, param="return_prune_depth")


class Page(Case):
    """The files of web/; web_test.py uses them in a browser."""

    def test_served_with_a_strict_policy(self):
        for path, kind in [("/", "text/html"), ("/web/main.js", "text/javascript"), ("/web/style.css", "text/css"),
                           ("/web/icon.svg", "image/svg+xml")]:
            status, headers, body = self.server.ask(path)
            self.assertEqual(status, 200, path)
            self.assertTrue(headers["Content-Type"].startswith(kind), headers)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            policy = headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'", policy)
            self.assertNotIn("unsafe", policy)
        self.refused("/web/nothing.js", None, 404)
        self.refused("/web/../index.html", None, 404)
        self.refused("/", {}, 405)


class LogProbs(Case):
    def test_echo_scores_the_prompt(self):
        text = "Once upon a time there was a secret code."
        ids = self.server.good("/tokenize", {"prompt": text})["tokens"]
        for prompt in [text, ids, [ids]]:
            reply = self.server.good("/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 3, "max_tokens": 1, **GREEDY})
            choice = reply["choices"][0]
            log = choice["logprobs"]
            self.assertTrue(choice["text"].startswith(text))
            lengths = {len(log[k]) for k in ["tokens", "token_logprobs", "top_logprobs", "text_offset"]}
            self.assertEqual(lengths, {len(ids) + 1})
            self.assertIsNone(log["token_logprobs"][0])
            self.assertIsNone(log["top_logprobs"][0])
            for token, value, top in list(zip(log["tokens"], log["token_logprobs"], log["top_logprobs"]))[1:]:
                self.assertLessEqual(value, 0)
                self.assertEqual(top[token], value)
                self.assertIn(len(top), (3, 4))
            # The generated token was sampled greedily: none is likelier.
            self.assertEqual(log["token_logprobs"][-1], max(log["top_logprobs"][-1].values()))
            for token, offset in zip(log["tokens"], log["text_offset"]):
                if not token.startswith("<"):
                    self.assertTrue(choice["text"][offset:].startswith(token), (token, offset))

    def test_scores_do_not_depend_on_the_request(self):
        ids = self.server.good("/tokenize", {"content": PROMPT_2K})["tokens"][:700]
        def score(prompt):
            body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, **GREEDY}
            return [c["logprobs"]["token_logprobs"] for c in self.server.good("/v1/completions", body)["choices"]]
        first, second = score([ids, ids[:300]])
        self.assertEqual(first[:300], second[:300])
        self.assertEqual(score(ids)[0], first)

    def test_one_token_even_where_it_is_the_end(self):
        info = self.server.good("/tokenizer_info")
        end = self.server.good("/tokenize", {"content": info["eos_token"]})["tokens"]
        body = {"prompt": end * 3, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1, "temperature": 5}
        self.assertEqual(len(self.server.good("/v1/completions", body)["choices"][0]["logprobs"]["tokens"]), 3 * len(end) + 1)

    def test_pruned_echo_is_refused(self):
        self.refused("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1, "prune": "ftp"}, param="prune")


class Routes(Case):
    def test_models_props_health(self):
        self.assertEqual(self.server.good("/health"), {"status": "ok"})
        models = self.server.good("/v1/models")
        self.assertEqual([m["id"] for m in models["data"]], ["coppice-mini-f16"])
        self.assertEqual(self.server.good("/v1/models/coppice-mini-f16"), models["data"][0])
        self.refused("/v1/models/other", None, 404)
        props = self.server.good("/props")
        self.assertEqual(props["default_generation_settings"]["n_ctx"], int(CTX))
        self.assertEqual(props["total_slots"], 4)
        self.assertEqual(self.server.good("/slots"), [{"id": i, "n_ctx": int(CTX), "is_processing": False} for i in range(4)])
        for action in ["save", "restore", "erase"]:
            self.refused(f"/slots/0?action={action}", {"filename": "../x"}, 501, kind="not_supported_error")

    def test_tokenize_and_back(self):
        text = "Hello, \u20ac world"
        llama = self.server.good("/tokenize", {"content": text})
        vllm = self.server.good("/tokenize", {"prompt": text, "add_special_tokens": False})
        self.assertEqual(llama["tokens"], vllm["tokens"])
        self.assertEqual(llama["count"], len(llama["tokens"]))
        self.assertEqual(self.server.good("/detokenize", {"tokens": llama["tokens"]}), {"content": text, "prompt": text})
        pieces = self.server.good("/tokenize", {"content": text, "with_pieces": True})["tokens"]
        self.assertEqual([p["id"] for p in pieces], llama["tokens"])
        self.refused("/detokenize", {"tokens": [-1]}, param="tokens")
        self.refused("/detokenize", {"tokens": [1 << 30]}, param="tokens")
        self.refused("/tokenize", {}, param="content")
        self.assertIn("eos_token", self.server.good("/tokenizer_info"))

    def test_metrics(self):
        before = self.server.metrics()
        self.server.good("/v1/completions", {"prompt": "a b c d", "max_tokens": 3, "ignore_eos": True})
        self.server.ask("/nowhere")
        self.server.wait_idle()  # it is counted once its client has been told
        after = self.server.metrics()
        self.assertEqual(after["coppice_tokens_predicted_total"] - before["coppice_tokens_predicted_total"], 3)
        self.assertEqual(after["coppice_time_to_first_token_seconds_count"],
                         before["coppice_time_to_first_token_seconds_count"] + 1)
        self.assertEqual(after['coppice_time_to_first_token_seconds_bucket{le="+Inf"}'],
                         after["coppice_time_to_first_token_seconds_count"])
        self.assertGreaterEqual(after['coppice_http_requests_total{status="404"}'], 1)

    def test_methods_and_paths(self):
        self.refused("/nowhere", None, 404, kind="not_found_error")
        self.refused("/v1/completions", None, 405)
        self.refused("/health", {}, 405)
        self.refused("/../../etc/passwd", None, 404)
        with self.server.connection() as connection:
            connection.request("HEAD", "/health")
            reply = connection.getresponse()
            self.assertEqual((reply.status, reply.read()), (200, b""))
            connection.request("GET", "/health")  # the same connection goes on
            self.assertEqual(connection.getresponse().status, 200)

    def test_other_sites_are_refused(self):
        self.refused("/v1/models", None, 403, headers={"Origin": "http://evil.example"})
        self.refused("/v1/models", None, 403, headers={"Host": "evil.example"})


class Chat(unittest.TestCase):
    MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "chat.gguf"
            write_chat_model(MODEL, model)
            cls.server = Server(PROGRAM, model, "--alias", "a-name").wait_ready()  # the file is mapped

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def refused(self, messages, says, **fields):
        status, _, reply = self.server.ask("/v1/chat/completions", {"messages": messages, **fields})
        self.assertEqual(status, 400, reply)
        self.assertIn(says, reply["error"]["message"])

    def test_template(self):
        def render(**fields):
            return self.server.good("/apply-template", {"messages": self.MESSAGES, **fields})["prompt"]
        text = "[system] Be brief.\n[user] Hello\n"
        self.assertEqual(render(), text + "[assistant] ")
        self.assertEqual(render(add_generation_prompt=False), text)
        self.assertEqual(render(chat_template_kwargs={"mood": "!"}), text + "[assistant]! ")
        self.assertIn("chat_template", self.server.good("/tokenizer_info"))

    def test_answers_as_the_completion_of_its_text(self):
        text = self.server.good("/apply-template", {"messages": self.MESSAGES})["prompt"]
        body = {"max_tokens": 8, **GREEDY}
        plain = self.server.good("/v1/completions", {"prompt": text, **body})
        chat = self.server.good("/v1/chat/completions", {"messages": self.MESSAGES, **body})
        self.assertEqual((chat["object"], chat["model"]), ("chat.completion", "a-name"))
        self.assertEqual(chat["choices"][0]["message"], {"role": "assistant", "content": plain["choices"][0]["text"]})
        self.assertEqual(chat["usage"], plain["usage"])
        events = self.server.stream("/v1/chat/completions", {"messages": self.MESSAGES, "stream_options": {"include_usage": True}, **body})
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(events[-3]["choices"][0]["delta"], {})
        self.assertEqual(events[-2]["usage"], plain["usage"])
        self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events[:-2]), plain["choices"][0]["text"])

    def test_log_probabilities(self):
        body = {"messages": self.MESSAGES, "max_tokens": 4, "logprobs": True, "top_logprobs": 2, **GREEDY}
        choice = self.server.good("/v1/chat/completions", body)["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual(b"".join(bytes(i["bytes"]) for i in content).decode(errors="replace"), choice["message"]["content"])
        for item in content:
            self.assertEqual(len(item["top_logprobs"]), 2)
            self.assertEqual(item["logprob"], max(t["logprob"] for t in item["top_logprobs"]))
        streamed = [e["choices"][0]["logprobs"] for e in self.server.stream("/v1/chat/completions", body)[:-1]]
        self.assertEqual(sum((l["content"] for l in streamed if l), []), content)

    def test_system_messages_are_protected(self):
        long = [{"role": "system", "content": "word " * 400}, {"role": "user", "content": "and " * 400}]
        def kept(messages):
            body = {"messages": messages, "max_tokens": 1, "prune": "random:layers=2,keep=0.05,min=0", **GREEDY}
            return self.server.good("/v1/chat/completions", body)["prune"]["kept_per_layer"][-1]
        self.assertGreater(kept(long), kept([{**long[0], "protect": False}, long[1]]) + 300)

    def test_templates_have_budgets(self):
        """Row 18: a template that never ends is an error of the request, soon."""
        for template, says in [("{% for i in range(1000000000) %}x{% endfor %}", "[chat template]"),
                               ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "[chat template]"),
                               ("{{ nothing.at.all() }}", "[chat template]")]:
            with tempfile.TemporaryDirectory() as folder:
                model = pathlib.Path(folder) / "chat.gguf"
                write_chat_model(MODEL, model, template)
                server = Server(PROGRAM, model).wait_ready()
                start = time.monotonic()
                status, _, reply = server.ask("/v1/chat/completions", {"messages": self.MESSAGES})
                self.assertEqual(status, 400, (template, reply))
                self.assertIn(says, reply["error"]["message"])
                self.assertLess(time.monotonic() - start, 10)
                self.assertEqual(server.good("/health"), {"status": "ok"})
                self.assertEqual(server.stop(), 0)

    def test_refusals(self):
        user = {"role": "user", "content": "x"}
        self.refused([], "messages")
        self.refused([{"content": "x"}], "message 1")
        self.refused([user, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "message 2")
        self.refused([user, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}], "tool_calls")
        self.refused([user], "tools", tools=[{"type": "function"}])
        self.refused([user], "continue_final_message", continue_final_message=True)
        self.refused([user], "messages", chat_template_kwargs={"messages": []})


class BadInput(Case):
    """Rows 17 and 19 to 21 of the table of bad inputs."""

    def test_fields(self):
        for name, value in [("n_predict", -5), ("n_predict", 2**31), ("n", 10**6), ("top_k", -1), ("n_discard", -1),
                            ("temperature", "hot"), ("best_of", 3), ("suffix", "x"), ("grammar", "root ::= x")]:
            self.refused("/v1/completions", {"prompt": "a", name: value}, param=name)
        for keep in ["0", "-1", "nan", "1e400", "2"]:
            self.refused("/v1/completions", {"prompt": "a", "prune": f"ftp:eta={keep}"}, param="prune")
        for prune in ["nothing", "lazyllm+nothing", "ftp:never=1", "sdtp:file=/etc/passwd", "selective:model=/etc/passwd",
                      {"method": "sdtp", "file": "/etc/passwd"}]:
            self.refused("/v1/completions", {"prompt": "a", "prune": prune}, param="prune")
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

    def test_chunked_body_and_expect(self):
        body = b'{"content": "Hello"}'
        chunked = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
        reply = self.server.raw(b"POST /tokenize HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
        self.assertIn(b'"tokens":', reply)
        reply = self.server.raw(b"POST /tokenize HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                                % len(body) + body)
        self.assertTrue(reply.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), reply)
        body = b'{"prompt": "a", "stream": true, "max_tokens": 2}'
        old = self.server.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertIn(b"data: [DONE]\n\n", old)
        self.assertNotIn(b"chunked", old)

    def test_pipelined_requests(self):
        reply = self.server.raw(b"GET /health HTTP/1.1\r\n\r\n" * 5 + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        self.assertEqual(reply.count(b'{"status":"ok"}'), 6)

    def test_hard_texts(self):
        for text in ["Z" * 131072, "A" * 43000, "\n" * 1000000, "\0" * 1000, "e" + "\u0301" * 500000]:
            start = time.monotonic()
            self.server.good("/tokenize", {"content": text})
            self.assertLess(time.monotonic() - start, 30)


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
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
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
            plain.sendall(b"POST /v1/completions HTTP/1.1\r\nX-Slow: "[:20 + i % 15])
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
                while part := plain.recv(64):
                    received += part
                    if received.endswith(b"0\r\n\r\n") or (not stream and received.endswith(b"}}")):
                        break
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
        self.assertLess(self.server.memory() - before, 64 << 20)


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
                   "temperature": i % 2, "prune": prune}
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


class Faults(unittest.TestCase):
    """Row 25: what the system takes away."""

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
            server.wait_for(lambda: server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200"))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_deadlines(self):
        server = Server(PROGRAM, MODEL, "-c", CTX, "--timeout", "1").wait_ready()
        try:
            clients = [socket.create_connection((server.host, server.port)) for _ in range(3)]
            clients[1].sendall(b"POST /v1/completions HTTP/1.1\r\nX")
            clients[2].sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
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
        keys = pathlib.Path(self.id() + ".keys")
        keys.write_text("from-file\n\nsecond\r\n")
        try:
            server = Server(PROGRAM, MODEL, "--host", "0.0.0.0", "--api-key", "one,two", "--api-key-file", str(keys)).wait_ready()
        finally:
            keys.unlink()
        try:
            server.host = "127.0.0.1"
            self.assertEqual(server.ask("/health")[0], 200)
            for header in [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer onx"}, {"X-Api-Key": ""}]:
                for path, body in [("/v1/models", None), ("/metrics", None), ("/slots", None), ("/v1/completions", {"prompt": "a"}), ("/x", None)]:
                    status, headers, _ = server.ask(path, body, headers=header)
                    self.assertEqual((status, headers.get("WWW-Authenticate")), (401, "Bearer"), (path, header))
            for header in [{"Authorization": "Bearer two"}, {"X-Api-Key": "from-file"}, {"Authorization": "Bearer second"}]:
                self.assertEqual(server.ask("/v1/models", headers=header)[0], 200)
            self.assertEqual(server.raw(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")[:12], b"HTTP/1.1 401")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_bad_starts(self):
        def fails(*options, says):
            done = subprocess.run([PROGRAM, "serve", "-m", str(MODEL), *options], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(says, done.stderr.decode())
            self.assertEqual(done.stderr.count(b"\n"), 1)
        fails("--host", "0.0.0.0", says="--api-key")
        fails("--host", "no.such.host.invalid", says="--host no.such.host.invalid")
        fails("--api-key-file", "/nonexistent", says="/nonexistent")
        fails("--api-key", ",", says="no key")
        fails("--port", "0", "--prune", "nothing", says="nothing")
        fails("--port", "0", "-m", "/nonexistent.gguf", says="/nonexistent.gguf")
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

    def test_ends_cleanly_in_every_phase(self):
        for number in [signal.SIGTERM, signal.SIGINT]:
            server = Server(PROGRAM, MODEL, "-c", CTX, "-np", "1").wait_ready()
            word = server.good("/tokenize", {"content": " the"})["tokens"][0]
            computing = server.send_only("/v1/completions", {"prompt": [word] * LONG})
            server.wait_busy()
            waiting = server.send_only("/v1/completions", {"prompt": "a"})
            idle = socket.create_connection((server.host, server.port))
            server.wait_for(lambda: "\ncoppice_requests_deferred 1\n" in server.good("/metrics"))
            start = time.monotonic()
            self.assertEqual(server.stop(number), 0)
            self.assertLess(time.monotonic() - start, 3)
            for client in [computing, waiting]:
                self.assertIn(b"503 Service Unavailable", client.recv(4096))
                client.close()
            idle.close()


if __name__ == "__main__":
    unittest.main()
