"""The answers of `coppice serve`: equal to the command's, streamed and whole, pruned, with depths and log-probabilities.

    server_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from server_case import ANSWER_2K, CTX, Case, GREEDY, LAYERS, MODEL, PROGRAM, PROMPT_2K, run_json
from server_support import Server

FINGERPRINT = "bb2e035af2875931a3c2c931be3b4e04"  # of the bundled model (src/engine/calibration_test.cpp)


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
        self.assertNotIn("question", protected)
        asked = self.server.good("/v1/completions", {
            "prompt": PROMPT_2K, "max_tokens": 1, "prune": {"spec": spec, "question": [[9, 12], [2, 5]]}, **GREEDY})["prune"]
        self.assertEqual(asked["question"], [[2, 5], [9, 12]])
        # A pruned request leaves nothing behind for the next.
        dense = self.server.good("/v1/completions", {"prompt": PROMPT_2K, "max_tokens": 8, **GREEDY})
        self.assertEqual(dense["choices"][0]["text"], run_json("-p", PROMPT_2K, "-n", "8")["text"])

    def test_auto_without_a_calibration_is_dense_and_says_so(self):
        body = {"prompt": PROMPT_2K, "max_tokens": 4, **GREEDY}
        for prune in ["auto", "auto:loss=5%", {"method": "auto", "loss": 0.05}]:
            reply = self.server.good("/v1/completions", {**body, "prune": prune})
            self.assertEqual((reply["prune"]["spec"], reply["prune"]["active"]), ("none", False))
            self.assertIn("no calibration for this model: dense", reply["prune"]["auto"])
        for prune, says in [("auto+ftp", "auto stands alone"), ({"method": "auto", "loss": 5}, "neither a share"),
                            ({"method": "auto", "keep": 0.5}, "unknown key 'keep'")]:
            self.assertIn(says, self.refused("/v1/completions", {**body, "prune": prune}, param="prune")["message"])

    def test_auto_runs_what_the_calibration_says(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "m.gguf")
            shutil.copy(MODEL, model)
            entry = {"loss": 0.01, "length": 2200, "min_tokens": 1650, "max_tokens": 2750, "prune": "static:layer=5,keep=0.5",
                     "held_out": {"score": 98, "dense": 99, "n": 50}}
            calibration = {"format": "coppice calibration", "version": 1, "model": {"fingerprint": FINGERPRINT},
                           "entries": [entry, {**entry, "loss": 0.05, "prune": "static:layer=5,keep=0.3"}]}
            pathlib.Path(f"{model}.coppice.json").write_text(json.dumps(calibration))
            server = Server(PROGRAM, model, "--prune", "auto").wait_ready()
            body = {"prompt": PROMPT_2K, "max_tokens": 4, **GREEDY}
            reply = server.good("/v1/completions", body)
            self.assertTrue(reply["prune"]["active"])
            self.assertTrue(reply["prune"]["spec"].startswith("static:layer=5,keep=0.5"), reply["prune"]["spec"])
            self.assertEqual(reply["prune"]["auto"], "calibration m.gguf.coppice.json: 1 % loss, 1,650 to 2,750 tokens: "
                                                     "held-out 98.0 of dense 99.0, n=50")
            looser = server.good("/v1/completions", {**body, "prune": {"method": "auto", "loss": 0.05}})
            self.assertTrue(looser["prune"]["spec"].startswith("static:layer=5,keep=0.3"), looser["prune"]["spec"])
            short = server.good("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4, **GREEDY})
            self.assertIn("covers 1,650 to 2,750 tokens, the prompt has", short["prune"]["auto"])
            self.assertNotIn("auto", server.good("/v1/completions", {**body, "prune": "ftp"})["prune"])
            self.assertEqual(server.stop(), 0)
            # The operator is told at once.
            pathlib.Path(f"{model}.coppice.json").write_text("[]")
            done = subprocess.run([PROGRAM, "serve", "-m", str(model), "--port", "0", "--prune", "auto"], capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"m.gguf.coppice.json: the file is no object", done.stderr)

    def test_llama_cpps_own_form(self):
        alone = run_json("-p", PROMPT_2K, "-n", "8")
        body = {"prompt": PROMPT_2K, "n_predict": 8, **GREEDY}
        for path in ["/completion", "/completions"]:
            reply = self.server.good(path, {**body, "return_tokens": True, "n_probs": 2})
            self.assertEqual(reply["content"], alone["text"])
            self.assertEqual(len(reply["tokens"]), reply["tokens_predicted"])
            self.assertEqual(self.server.good("/detokenize", {"tokens": reply["tokens"]})["content"].strip(), alone["text"].strip())
            self.assertIs(reply["stop"], True)
            self.assertIs(reply["truncated"], False)
            self.assertEqual(reply["tokens_evaluated"], alone["prompt_tokens"])
            self.assertEqual(reply["timings"]["prompt_n"], alone["prompt_tokens"])
            self.assertEqual(reply["generation_settings"]["temperature"], 0)
            self.assertEqual(reply["generation_settings"]["n_predict"], 8)
            self.assertEqual([len(p["top_logprobs"]) for p in reply["completion_probabilities"]], [2] * len(reply["completion_probabilities"]))
            self.assertEqual(reply["completion_probabilities"][0]["id"], reply["tokens"][0])
        self.assertEqual(self.server.good("/completion", body)["tokens"], [])
        ends = lambda **more: {key: self.server.good("/completion", {**body, **more})[key] for key in ["stop_type", "stopping_word", "content"]}
        text = self.server.good("/completion", {**body, "ignore_eos": True})["content"]
        self.assertEqual(ends(n_predict=1, ignore_eos=True)["stop_type"], "limit")
        self.assertEqual(ends(stop=["never", text[2]], ignore_eos=True), {"stop_type": "word", "stopping_word": text[2], "content": text[:text.index(text[2])]})
        eos = self.server.good("/completion", {**body, "stop_token_ids": [self.server.good("/completion", {**body, "return_tokens": True})["tokens"][0]]})
        self.assertEqual((eos["stop_type"], eos["content"]), ("eos", ""))
        # Several prompts are a list; a stream's parts join to the whole, and it has no [DONE].
        both = self.server.good("/completion", {**body, "prompt": ["Once upon a time", "The secret"]})
        self.assertEqual([part["index"] for part in both], [0, 1])
        self.assertEqual(both[1]["content"], self.server.good("/completion", {**body, "prompt": "The secret"})["content"])
        events = self.server.stream("/completion", {**body, "return_tokens": True, "return_progress": True, "prune": "ftp:min=0"})
        self.assertEqual("".join(event["content"] for event in events), self.server.good("/completion", {**body, "prune": "ftp:min=0"})["content"])
        self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
        self.assertTrue(any("prompt_progress" in event for event in events))
        self.assertEqual(len(sum((event["tokens"] for event in events), [])), events[-1]["tokens_predicted"])
        self.assertTrue(events[-1]["prune"]["active"])
        self.assertIn("timings", events[-1])
        self.refused("/completion", {"n_predict": 3}, param="prompt")
        self.refused("/completion", {**body, "echo": 3, "n_probs": 99}, param="n_probs")
        # Until the model stops, as llama.cpp, unless the request says otherwise.
        self.assertGreater(self.server.good("/completion", {"prompt": "Once", "seed": 3, "ignore_eos": True, "n_predict": 40})["tokens_predicted"], 39)

    def test_sampling_fields_change_answers(self):
        body = {"prompt": "Once upon a time", "n_predict": 6, "return_tokens": True, "ignore_eos": True, **GREEDY}
        plain = self.server.good("/completion", body)["tokens"]
        banned = self.server.good("/completion", {**body, "logit_bias": {str(plain[0]): -100}})["tokens"]
        self.assertNotIn(plain[0], banned)
        forced = self.server.good("/completion", {**body, "logit_bias": [[7, 1000]]})["tokens"]
        self.assertEqual(forced, [7] * 6)
        # Each time a token appears its logit falls by two, until the other one of the two is the likelier.
        two = {**body, "n_predict": 16, "logit_bias": [[7, 1000], [8, 1000]]}
        varied = self.server.good("/completion", {**two, "frequency_penalty": 2})["tokens"]
        self.assertEqual(set(varied), {7, 8})
        self.assertNotEqual(varied, self.server.good("/completion", two)["tokens"])
        self.refused("/completion", {**body, "logit_bias": {"99999999": 1}}, param="logit_bias")

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

    def test_choices_of_one_prompt_have_its_scores(self):
        """They are computed once; the answers are those of requests for one choice."""
        body = {"prompt": ["Once upon a time there was", "a"], "echo": True, "logprobs": 2, "max_tokens": 5, "ignore_eos": True,
                "temperature": 1}
        alone = [self.server.good("/v1/completions", {**body, "seed": 7 + i})["choices"] for i in range(3)]
        expected = [alone[i][at] for at in range(2) for i in range(3)]
        choices = self.server.good("/v1/completions", {**body, "n": 3, "seed": 7})["choices"]
        self.assertEqual([c["index"] for c in choices], list(range(6)))
        for choice, one in zip(choices, expected):
            self.assertEqual((choice["text"], choice["logprobs"]), (one["text"], one["logprobs"]))
        streamed = [{"text": "", "tokens": []} for _ in range(6)]
        for event in self.server.stream("/v1/completions", {**body, "n": 3, "seed": 7}):
            for part in event["choices"] if isinstance(event, dict) else []:
                streamed[part["index"]]["text"] += part["text"]
                streamed[part["index"]]["tokens"] += part["logprobs"]["tokens"] if part["logprobs"] else []
        for choice, one in zip(streamed, expected):
            self.assertEqual((choice["text"], choice["tokens"]), (one["text"], one["logprobs"]["tokens"]))

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
        reply = self.server.good("/v1/completions", body)
        self.assertEqual(len(reply["choices"][0]["logprobs"]["tokens"]), 3 * len(end) + 1)
        self.assertEqual(reply["timings"]["predicted_per_second"], 0)  # no token was decoded after the prefill

    def test_pruned_echo_is_refused(self):
        self.refused("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1, "prune": "ftp"}, param="prune")


if __name__ == "__main__":
    unittest.main()
