"""The program from outside: what run answers, prunes, keeps and traces, and the smaller commands.

    cli_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import unittest

from cli_support import ANSWER_2K, Case, MODEL, PROGRAM, PROMPT_2K, SHARED, SOURCE, needs_shared, positions_of, run
from server_support import patience
from chat_model import write_chat_model
from gguf_edit import edit


class Run(Case):
    def test_answers_densely_and_pruned(self):
        for prune in ["none", "ftp", "lazyllm", "lazyllm+quest:budget=256", "sliminfer:min=0", "sliminfer:min=0+ftp:eta=0.9"]:
            out = self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "8", "--temp", "0", "--prune", prune)
            self.assertIn(ANSWER_2K, out, prune)
        for prune in ["random:keep=0.5,min=0", "streamingllm:recent=500,min=0"]:  # what the question asks for is gone
            out = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "8", "--temp", "0", "--json", "--prune", prune))
            self.assertTrue(out["prune"]["active"], prune)
            self.assertNotIn(ANSWER_2K, out["text"], prune)

    def test_json(self):
        out = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "4", "--temp", "0", "--json",
                                   "--prune", "sliminfer:layers=4/6/8,keep=1024/512/256,revive=none,min=0"))
        self.assertIn(ANSWER_2K[:2], out["text"])
        self.assertEqual(out["generated_tokens"], 4)
        self.assertEqual(out["finish_reason"], "length")
        self.assertGreater(out["total_ms"], out["ttft_ms"])
        tokens = out["prompt_tokens"]
        tail = (tokens - 1) % 64 + 1  # of the last block
        def kept(budget):
            return budget - 64 + tail
        prune = out["prune"]
        self.assertEqual(prune["kept_per_layer"], [tokens] * 4 + [kept(1024)] * 2 + [kept(512)] * 2 + [kept(256)] * 2)
        self.assertEqual(prune["ffn_rows_per_layer"],
                         [tokens] * 3 + [kept(1024)] * 2 + [kept(512)] * 2 + [kept(256)] * 2 + [1])
        self.assertTrue(prune["active"])
        self.assertNotIn("reason", prune)
        self.assertEqual(prune["token_layers"], sum(prune["kept_per_layer"]) + 3 * 10)
        self.assertEqual(prune["token_layers_dense"], (tokens + 3) * 10)
        self.assertEqual(prune["kv_bytes"], 2 * 2 * 128 * (sum(prune["kept_per_layer"]) + 3 * 10))
        self.assertEqual(prune["kv_bytes_dense"], 2 * 2 * 128 * 10 * (tokens + 3))
        self.assertLess(prune["flops"], prune["flops_dense"])
        for key in ["backend", "isa", "threads", "decode_tokens_per_second"]:
            self.assertIn(key, out)

    def test_falls_back(self):
        prompt = ["-m", MODEL, "-f", PROMPT_2K, "-n", "8", "--temp", "0"]
        blind = ["--prune", "random:keep=0.3,min=0"]  # what the question asks for is gone
        self.assertNotIn(ANSWER_2K, self.good("run", *prompt, *blind))
        self.assertIn(ANSWER_2K, self.good("run", *prompt, *blind, "--fallback", "1"))
        out = json.loads(self.good("run", *prompt, *blind, "--fallback", "1", "--json"))
        self.assertTrue(out["prune"]["fell_back"])
        self.assertGreater(out["prune"]["flops"], out["prune"]["flops_dense"])
        self.assertIn("confidence", out["prune"])
        kept = json.loads(self.good("run", *prompt, "--prune", "coppice", "--fallback", "0.01", "--json"))
        self.assertNotIn("fell_back", kept["prune"])
        self.assertIn(ANSWER_2K, kept["text"])
        for wrong in ["2", "-1", "nan", "maybe"]:
            self.bad("run", *prompt, *blind, "--fallback", wrong, code=2, says=["--fallback"])

    def test_stands_aside(self):
        out = json.loads(self.good("run", "-m", MODEL, "-p", "Hello", "-n", "1", "--json", "--prune", "sliminfer+ftp"))
        self.assertFalse(out["prune"]["active"])
        self.assertRegex(out["prune"]["reason"], "sliminfer: .* fit its last budget.*; ftp: .* are below its break-even of 1024")

    def test_says_what_came_of_pruning(self):
        def said(*args):
            done = run("run", "-m", MODEL, "-n", "2", "--temp", "0", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr.decode()
        short, long = ["-p", "Hello"], ["-f", PROMPT_2K]
        read = r"^read 4 tokens in [\d.]+ s; wrote 2 tokens, [\d.]+ a second \(cut at 2 tokens: -n\)$"
        lines = said(*short, "--prune", "ftp").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[0], r"^stands aside: ftp: 4 prompt tokens are below its break-even of 1024$")
        self.assertRegex(lines[1], read)
        lines = said(*short, "--prune", "ftp", "-v").splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[2], r"^prune ftp:.*: stood aside: ftp: 4 prompt tokens are below its break-even of 1024$")
        lines = said(*long, "--prune", "coppice").splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^read \d,\d\d\d tokens in [\d.]+ s; \d+ % of the work of a full read; wrote 2 tokens, ")
        lines = said(*long, "--prune", "coppice", "--verbose").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[1], r"^prune coppice:.*: kept \d+ % / \d+ % of the dense KV / FFN rows, \d+ % of the FLOPs, KV .* of .*$")
        lines = said(*long, "--prune", "random:keep=0.3,min=0", "--fallback", "1").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[1], r"^prune: answered densely: .* below 1 \(random:")
        for quiet in (["-q"], ["--quiet"], ["--json"]):
            for prune in ("ftp", "auto", "coppice"):
                self.assertEqual(said(*short, "--prune", prune, *quiet), "")
        self.assertRegex(said(*short), read)
        self.assertIn("; wrote 0 tokens (cut at 0 tokens: the context is full, -c)", said(*short, "-c", "4"))
        self.assertIn("tokens from the document cache; ", re.sub(r"(\d+) tokens of them", "tokens", said(*long, "--ask", "Who?", "--ask", "When?"))
                      .replace(" of them", ""))

    def test_the_share_of_the_work_is_the_ledgers(self):
        done = run("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", "coppice")
        prune = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", "coppice", "--json"))["prune"]
        share = int(re.search(r"; (\d+) % of the work", done.stderr.decode())[1])  # one token: no work but the read's
        self.assertAlmostEqual(share, 100 * prune["flops"] / prune["flops_dense"], delta=0.51)

    def test_says_it_before_the_read(self):
        """The line is there while the prompt is still read: nothing was generated, and the process is stopped."""
        process = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-f", PROMPT_2K, "--backend", "reference", "--prune", "auto"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.assertRegex(process.stderr.readline(), rb"^auto: no calibration for this model: dense")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300 * patience(PROGRAM))
        self.assertEqual((process.returncode, out), (130, b""))

    def test_same_seed_same_text(self):
        args = ["run", "-m", MODEL, "-p", "Once upon a time", "-n", "24", "--temp", "1.5"]
        first = self.good(*args, "-s", "7")
        self.assertEqual(first, self.good(*args, "-s", "7"))
        self.assertNotEqual(first, self.good(*args, "-s", "8"))

    def test_backends_agree(self):
        args = ["run", "-m", MODEL, "-p", "The secret code of the misty harbor is 48213.\nQuestion: What is the secret "
                "code of the misty harbor?\nAnswer: The secret code of the misty harbor is", "-n", "8", "--temp", "0"]
        reference = self.good(*args, "--backend", "reference")
        self.assertIn("48213", reference)
        self.assertEqual(self.good(*args), reference)
        self.assertEqual(self.good(*args, "--exact", "-ub", "7", "-t", "1"), reference)

    def test_protected_tokens_stay(self):
        args = ["run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--json", "--prune",
                "sliminfer:layers=4,keep=128,block=64,last=1,min=0"]
        plain = json.loads(self.good(*args))["prune"]["kept_per_layer"][4]
        more = json.loads(self.good(*args, "--protect-first", "500", "--protect-last", "300"))["prune"]["kept_per_layer"][4]
        self.assertLessEqual(plain, 128)
        self.assertGreaterEqual(more, 800)

    def test_interrupt(self):
        process = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-p", "Once", "--ignore-eos", "-n", "30000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)  # it generates
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (130, b"coppice: interrupted\n"))

    def test_terminal_shows_progress_and_summary(self):
        ours, theirs = pty.openpty()
        done = subprocess.run([PROGRAM, "run", "-m", MODEL, "-f", PROMPT_2K, "-n", "2", "--temp", "0", "--backend", "reference"],
                              stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, timeout=300 * patience(PROGRAM))
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(shown.decode(), r"prefill  layer \d+/10  \[#*-*\] +\d+ %")
        self.assertRegex(shown.decode(), r"\nread [\d,]+ tokens in [\d.]+ s; wrote 2 tokens")


class Documents(Case):
    SPEC = "sliminfer:min=0"

    def ask(self, prompt, folder, *more):
        done = run("run", "-m", MODEL, "-f", prompt, "-n", "8", "--temp", "0", "--json", "--prune", self.SPEC,
                   *(["--doc-cache", folder] if folder else []), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr.decode()

    def test_second_question_in_a_second_process(self):
        text = pathlib.Path(PROMPT_2K).read_text()
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "other.txt")
            other.write_text(text[: len(text) - 200] + " And what was the first line about?")
            cache = f"{folder}/cache"
            first, _ = self.ask(PROMPT_2K, cache)
            self.assertEqual(first["cached_tokens"], 0)
            self.assertIn(ANSWER_2K, first["text"])
            second, _ = self.ask(other, cache)
            fresh, _ = self.ask(other, None)
            self.assertGreater(second["cached_tokens"], 0.8 * second["prompt_tokens"])
            self.assertEqual(second["text"], fresh["text"])
            self.assertEqual(second["prune"]["kept_per_layer"], fresh["prune"]["kept_per_layer"])
            self.assertLess(second["prune"]["flops"], 0.8 * fresh["prune"]["flops"])
            self.assertEqual(self.ask(other, cache, "--exact")[0]["cached_tokens"], 0)

            for file in pathlib.Path(cache).iterdir():  # damaged: named, and not used
                data = bytearray(file.read_bytes())
                data[-100] ^= 1
                file.write_bytes(data)
            third, warning = self.ask(other, cache)
            self.assertEqual((third["cached_tokens"], third["text"]), (0, fresh["text"]))
            self.assertRegex(warning, r"\Awarning: \[prefix\] .*checksum.*\n\Z")

    def test_a_folder_that_cannot_be(self):
        self.bad("run", "-m", MODEL, "-p", "x", "--doc-cache", PROMPT_2K, says=[PROMPT_2K, "not a folder"])


class Others(Case):
    def test_version_and_help(self):
        version = self.good("--version")
        self.assertRegex(version, r"^coppice \d+\.\d+\.\d+ ")
        # A build without the kernels says so in both places.
        without = "(built without kernels)" in version
        self.assertIn(f"backends: cpu, gpu{' (built without kernels)' if without else ''}, reference", version)
        self.assertEqual("a CUDA device (built without kernels)" in " ".join(self.good("run", "--help").split()), without)
        self.assertIn("Examples:", self.good("run", "--help"))

    def test_methods_lists_every_method_with_its_keys(self):
        out = self.good("methods")
        for word in ["ftp", "sliminfer", "eta", "arXiv", "block"]:
            self.assertIn(word, out)

    def test_methods_tells_of_one(self):
        whole = self.good("methods")
        names = re.findall(r"^([a-z0-9]+): ", whole, re.MULTILINE)
        self.assertEqual("".join(self.good("methods", name) + "\n" for name in names), whole[:whole.index("Join methods")])
        self.assertIn("loss", self.good("methods", "auto"))
        self.assertIn("no pruning", self.good("methods", "none"))
        self.bad("methods", "copice", says=["methods: no method 'copice': did you mean coppice? There are none, lazyllm"])
        self.bad("methods", "coppice", "ftp", code=2, says=["ftp"])

    def test_selective_context(self):
        spec = f"selective:model={MODEL},keep=0.5"
        answer = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", spec, "--json"))
        prune = answer["prune"]
        self.assertTrue(prune["active"])
        self.assertGreater(prune["selection_flops"], 0)
        self.assertLess(prune["kept_per_layer"][0], 0.7 * answer["prompt_tokens"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "selective:model=/none.gguf", says=["/none.gguf"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "selective", says=["model= is missing"])

    def test_specprefill(self):
        spec = f"specprefill:draft={MODEL},keep=0.3"
        answer = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", spec, "--json"))
        prune = answer["prune"]
        self.assertTrue(prune["active"])
        self.assertGreater(prune["selection_flops"], 0)
        self.assertLess(prune["kept_per_layer"][0], 0.35 * answer["prompt_tokens"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "specprefill:draft=/none.gguf", says=["/none.gguf"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "specprefill", says=["draft= is missing"])

    def test_llmlingua2(self):
        for name in ["bert", "xlmr"]:  # random weights: the words are arbitrary, their number is not
            spec = f"llmlingua2:model={SOURCE}/tests/data/llmlingua2/{name},keep=0.5"
            answer = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", spec, "--json"))
            prune = answer["prune"]
            self.assertTrue(prune["active"], prune)
            self.assertGreater(prune["selection_flops"], 0)
            self.assertTrue(0.3 < prune["kept_per_layer"][0] / answer["prompt_tokens"] < 0.7, prune["kept_per_layer"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "llmlingua2:model=/none", says=["/none"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "llmlingua2", says=["model= is missing"])

    def test_drop(self):
        run = ["run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--json", "--prune"]
        answer = json.loads(self.good(*run, "drop:span=100/200,layer=4"))
        tokens = answer["prompt_tokens"]
        self.assertEqual(answer["prune"]["kept_per_layer"], [tokens] * 4 + [tokens - 100] * 6)
        self.assertIn("evidence", json.loads(self.good(*run, "drop:layer=4"))["prune"]["reason"])

    def test_gemfilter(self):
        run = ["run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--json", "--prune"]
        answer = json.loads(self.good(*run, "gemfilter:keep=0.25"))
        prune = answer["prune"]
        self.assertTrue(prune["active"])
        self.assertEqual(set(prune["kept_per_layer"]), {int(0.25 * answer["prompt_tokens"])})
        self.assertTrue(0 < prune["selection_flops"] < prune["flops"] < prune["flops_dense"])
        aside = json.loads(self.good(*run, "gemfilter:keep=0.9"))["prune"]
        self.assertRegex(aside["reason"], "no less work than the dense prefill")
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "gemfilter:layer=10", says=["gemfilter: layer=10"])

    def test_inspect(self):
        out = self.good("inspect", MODEL, "--tensors", "--check-tensors")
        for part in ["coppice-mini", "7.78 M", "blk.9.ffn_down.weight", "256 x 688", "all tensors are finite"]:
            self.assertIn(part, out)
        self.assertRegex(out, "output +a matrix of its own|output +tied to the embedding")

    def test_sizes_as_lists(self):
        told = self.good("inspect", MODEL)
        layers = int(re.search(r"layers +(\d+)", told)[1])
        kv_heads, ffn = int(re.search(r"(\d+) key/value heads", told)[1]), int(re.search(r"FFN +(\d+)", told)[1])
        with tempfile.TemporaryDirectory() as folder:
            lists = {"llama.attention.head_count_kv": [kv_heads] * layers, "llama.feed_forward_length": [ffn] * layers}
            edit(MODEL, f"{folder}/x.gguf", lists=lists)
            self.assertEqual(self.good("inspect", f"{folder}/x.gguf").replace(f"{folder}/x.gguf", MODEL), told)
            asked = ["-f", PROMPT_2K, "-n", "4", "--temp", "0", "-m"]
            self.assertEqual(self.good("run", *asked, f"{folder}/x.gguf"), self.good("run", *asked, MODEL))
            lists["llama.feed_forward_length"][3] += 32
            edit(MODEL, f"{folder}/x.gguf", lists=lists)
            self.bad("inspect", f"{folder}/x.gguf", says=["blk.3.ffn_gate.weight", f"config says [{ffn + 32}"])
            lists["llama.feed_forward_length"].pop()
            edit(MODEL, f"{folder}/x.gguf", lists=lists)
            self.bad("run", "-p", "x", "-m", f"{folder}/x.gguf",
                     says=[f"llama.feed_forward_length has {layers - 1} entries for {layers} layers"])

    def test_inspect_prints_no_control_characters(self):
        name = b"general.name\x08\0\0\0\x0c\0\0\0\0\0\0\0coppice-mini"
        model = pathlib.Path(MODEL).read_bytes()
        self.assertEqual(model.count(name), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            path.write_bytes(model.replace(name, name[:-12] + b"\x1b[2Joppice-\r"))
            self.assertNotRegex(self.good("inspect", path, "--tensors"), "[^\n -~]")

    def test_synth_bench_and_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ["bf16", "q8_0", "q4_0", "f32"]:
                path = f"{folder}/tiny-{kind}.gguf"
                self.good("synth", "--shape", f"tiny:{kind}", "-o", path)
                self.assertIn(kind.upper(), self.good("inspect", path))
                self.good("run", "-m", path, "-p", "any text", "-n", "3", "--ignore-eos")
            lines = self.good("bench", "-m", path, "-p", "96,300", "-n", "4", "-r", "1", "-o", "jsonl", "--prune",
                              "sliminfer:layers=2,keep=128,min=0").splitlines()
            rows = [json.loads(line) for line in lines]
            self.assertEqual([(r["prompt"], r["active"]) for r in rows], [(96, False), (96, False), (300, False), (300, True)])
            self.assertEqual(rows[0]["speed_up"], 1)
            self.assertGreater(rows[3]["flop_bound"], 1.2)
            self.assertEqual(os.listdir(folder).count("tiny-f32.gguf"), 1)
            self.bad("synth", "--shape", "tiny", "-o", f"{folder}/none/x.gguf", says=["none/x.gguf"])
            self.bad("synth", "--shape", "tiny:q7", "-o", f"{folder}/x.gguf", says=["q7"])
            self.bad("synth", "--shape", "huge", "-o", f"{folder}/x.gguf", says=["huge", "llama-3.2-1b"])
            self.assertFalse(os.path.exists(f"{folder}/x.gguf"))

    @needs_shared
    def test_tokenize(self):
        folder = SHARED / "data/tokenizer"
        texts = (folder / "ggml-vocab-llama-bpe.gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
        ids = (folder / "ggml-vocab-llama-bpe.gguf.out").read_text().split("\n")
        for text, want in list(zip(texts, ids))[:6]:
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(text)
                file.flush()
                got = json.loads(self.good("tokenize", "-m", str(folder / "ggml-vocab-llama-bpe.gguf"), "-f", file.name,
                                           "--no-special", "--ids"))
            self.assertEqual(got, [int(i) for i in want.split()])


class Chat(Case):
    def test_a_protected_message_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            model, file, trace = f"{folder}/chat.gguf", f"{folder}/chat.json", f"{folder}/run.jsonl"
            write_chat_model(MODEL, model, "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}\n{% endfor %}answer:")
            text = (SOURCE / "tests/data/prompt-2k.txt").read_text()
            secret = "The secret number of the quiet lake is 31415."
            messages = [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": text[:1500]},
                        {"role": "user", "content": secret, "protect": True}, {"role": "user", "content": text[1500:3000]}]
            args = ["run", "-m", model, "--messages", file, "-n", "3", "--ignore-eos", "--temp", "0", "--trace", trace, "--json"]

            def kept(prune):
                pathlib.Path(file).write_text(json.dumps(messages))
                out = json.loads(self.good(*args, "--prune", prune))
                self.assertTrue(out["prune"]["active"])
                header, *lines = [json.loads(line) for line in pathlib.Path(trace).read_text().splitlines()]
                tokens = [t if isinstance(t, str) else "?" for t in header["tokens"][:out["prompt_tokens"]]]
                layers = []
                for line in lines[:10]:
                    layers.append(positions_of(line["kept"]) if "kept" in line else layers[-1])
                return ["".join(tokens[p] for p in layer) for layer in layers]

            for prune in ["sliminfer:layers=2/5,keep=64/32,block=16,last=1,min=0", "lazyllm:layers=2/5,keep=0.1,min=0",
                          "static:layer=2,keep=0.1,min=0", "snapkv:cap=128,window=8,min=0"]:
                for layer in kept(prune):
                    self.assertIn(secret, layer, prune)
                    self.assertIn("Answer in one word.", layer, prune)  # a system message is protected by itself
            messages[0]["protect"] = messages[2]["protect"] = False
            last = kept("sliminfer:layers=2/5,keep=64/32,block=16,last=1,min=0")[-1]
            self.assertNotIn(secret, last)
            for bad in ["{}", "[]", "[1]", "not json", '[{"role": "user"}]', '[{"role": "user", "content": 1}]',
                        '[{"role": "user", "content": "x", "protect": 1}]', '[{"role": "user", "content": "x", "question": 1}]']:
                pathlib.Path(file).write_text(bad)
                self.bad("run", "-m", model, "--messages", file, says=[file])

    def test_chatml_where_the_model_has_no_template(self):
        done = run("run", "-m", MODEL, "--chat", "-p", "Hi", "-n", "1", "--json")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"^warning: .*coppice-mini-f16.gguf has no chat template, so the chat is written in ChatML; .*\n$")
        self.assertEqual(run("run", "-m", MODEL, "-p", "Hi", "--ask", "Who?", "-n", "1", "--json").stderr, b"")  # no chat

    def test_a_context_beyond_training(self):
        trained = int(re.search(r"context +(\d+)", self.good("inspect", MODEL))[1])
        base = ["run", "-m", MODEL, "-p", "Hi", "-n", "1", "--json"]
        self.good(*base, "-c", str(trained))
        done = run(*base, "-c", str(trained + 1))
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), rf"^warning: --ctx-size {trained + 1}: .* was trained for {trained} positions, .*\n$")

    def test_chatml_ids(self):
        done = run("run", "-m", MODEL, "--chat", "-p", "Hi", "-n", "1", "--json")
        ids = json.loads(self.good("tokenize", "-m", MODEL, "--ids", "-p", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"))
        self.assertEqual(json.loads(done.stdout)["prompt_tokens"], len(ids))


class Question(Case):
    """Where a run says that the question is, as the texts of its spans."""

    def question(self, *args, command="run"):
        with tempfile.TemporaryDirectory() as folder:
            trace = f"{folder}/run.jsonl"
            out = json.loads(self.good(command, "-n", "1", "--temp", "0", "--json", "--trace", trace, *args))
            tokens = json.loads(pathlib.Path(trace).read_text().splitlines()[0])["tokens"]
        return ["".join(tokens[begin:end]).strip() for begin, end in out["prune"].get("question", [])]

    def test_of_a_prompt(self):
        prompt = ["-m", MODEL, "-p", "Who is it? Ada is tall. Hugo is wise. Who is it? Answer:"]
        self.assertEqual(self.question(*prompt), [])
        self.assertEqual(self.question(*prompt, "--question", "Hugo is wise."), ["Hugo is wise."])
        last = json.loads(self.good("run", *prompt, "-n", "1", "--json", "--question", "Who is it?"))["prune"]["question"]
        tokens = json.loads(self.good("tokenize", *prompt, "--ids"))
        self.assertGreater(last[0][0], len(tokens) / 2)  # the last of the places where it stands
        self.assertEqual(self.question(*prompt, "--query-span", f"{last[0][0]}:{last[0][1]}"), ["Who is it?"])
        (end,) = self.question(*prompt, "--query-span=-2:")
        self.assertTrue("Answer:".endswith(end) and end, end)
        self.assertEqual(self.question(*prompt, "--query-span", "-2:-1", "--query-span", "-4:-2"),
                         self.question(*prompt, "--query-span", f"{len(tokens) - 4}:{len(tokens) - 1}"))
        self.assertEqual(self.question(*prompt, "--query-span", "none"), [])

    def test_of_a_chat(self):
        with tempfile.TemporaryDirectory() as folder:
            model, file = f"{folder}/chat.gguf", f"{folder}/chat.json"
            write_chat_model(MODEL, model)
            chat = ["-m", model, "--chat", "--system", "Be brief.", "-p", "Ada is tall. Who is tall?"]
            self.assertEqual(self.question(*chat), ["Ada is tall. Who is tall?"])
            self.assertEqual(self.question(*chat, "--question", "Who is tall?"), ["Who is tall?"])
            self.assertEqual(self.question(*chat, "--query-span", "none"), [])
            messages = [{"role": "user", "content": "Who is tall?"}, {"role": "user", "content": "Ada is tall."}]
            for marked, text in [(None, "Ada is tall."), (0, "Who is tall?")]:
                if marked is not None:
                    messages[marked]["question"] = True
                pathlib.Path(file).write_text(json.dumps(messages))
                self.assertEqual(self.question("-m", model, "--messages", file), [text])
            rows = json.loads(self.good("compare", *chat, "-n", "1", "-r", "1", "--prune", "random:min=0", "--json"))
            self.assertEqual(rows[0]["prune"]["question"], rows[1]["prune"]["question"])

    def test_what_is_no_place_in_the_prompt(self):
        base = ["run", "-m", MODEL, "-p", "one two three", "-n", "1"]
        self.bad(*base, "--question", "four", says=["--question", "'four'"])
        self.bad(*base, "--question", "", says=["--question"])
        for span, part in [("0:99999", "not inside the prompt"), ("-99999:3", "not inside the prompt"), ("3:2", "holds no token"),
                           ("2:2", "holds no token")]:
            self.bad(*base, "--query-span", span, says=["--query-span " + span, part])
        self.bad(*base, "--query-span", "0:1", "--query-span", "none", says=["--query-span"])
        for span in ["", "5", "a:b", "1:2:3", "1:2x", "9" * 30 + ":", "1.5:2"]:
            self.bad(*base, "--query-span", span, code=2, says=["--query-span"])
        self.bad(*base, "--query-span", "0:1", "--question", "two", code=2, says=["--query-span", "--question"])


class Ask(Case):
    """Questions that follow a prompt, and a prompt from stdin."""

    DOCUMENT, ASKED = pathlib.Path(PROMPT_2K).read_text().rsplit("\nQuestion:", 1)
    ASKED = "Question:" + ASKED.rstrip("\n")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file, self.chat, self.trace = (f"{folder.name}/{name}" for name in ("report.txt", "chat.gguf", "run.jsonl"))
        pathlib.Path(self.file).write_text(self.DOCUMENT + "\n\n")

    def prompt_and_question(self, *args):
        """The text of the prompt, and of what is marked in it as the question."""
        out = json.loads(self.good("run", "-n", "1", "--temp", "0", "--json", "--trace", self.trace, *args))
        tokens = json.loads(pathlib.Path(self.trace).read_text().splitlines()[0])["tokens"][:out["prompt_tokens"]]
        return "".join(tokens), ["".join(tokens[begin:end]).strip() for begin, end in out["prune"].get("question", [])]

    def test_behind_a_text(self):
        prompt, question = self.prompt_and_question("-m", MODEL, "-f", self.file, "--ask", self.ASKED)
        self.assertTrue(prompt.endswith(f"{self.DOCUMENT}\n\n{self.ASKED}"), prompt[-200:])
        self.assertEqual(question, [self.ASKED])
        said = json.loads(self.good("run", "-m", MODEL, "-f", self.file, "--ask", self.ASKED, "-n", "8", "--temp", "0", "--json",
                                    "--prune", "coppice"))
        self.assertTrue(said["prune"]["active"])
        self.assertIn(ANSWER_2K, said["text"])

    def test_as_a_message_of_a_chat(self):
        write_chat_model(MODEL, self.chat)
        texts = ["-p", "Ada is tall.", "--ask", "Who is tall?"]
        for more in ([], ["--chat"], ["--system", "Be brief."]):
            prompt, question = self.prompt_and_question("-m", self.chat, *texts, *more)
            self.assertIn("[user] Ada is tall.\n[user] Who is tall?\n[assistant]", prompt)
            self.assertEqual(("[system] Be brief." in prompt, question), ("--system" in more, ["Who is tall?"]))
        prompt, question = self.prompt_and_question("-m", self.chat, "--ask", "Who?")  # and nothing else
        self.assertTrue(prompt.endswith("[user] Who?\n[assistant] ") and prompt.count("[user]") == 1, prompt)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([{"role": "user", "content": "Ada is tall."}, {"role": "assistant", "content": "Yes."}], file)
            file.flush()
            prompt, question = self.prompt_and_question("-m", self.chat, "--messages", file.name, "--ask", "Who?")
        self.assertIn("[user] Ada is tall.\n[assistant] Yes.\n[user] Who?\n", prompt)
        self.assertEqual(question, ["Who?"])
        row = json.loads(self.good("compare", "-m", self.chat, *texts, "-n", "1", "-r", "1", "--prune", "ftp", "--json"))[0]
        self.assertEqual(len(row["prune"]["question"]), 1)

    def test_several_share_the_read(self):
        asked = ["-m", MODEL, "-f", self.file, "-n", "8", "--temp", "0"]
        other = "Which is the first colour?"
        alone = [self.good("run", *asked, "--ask", question) for question in (self.ASKED, other)]
        self.assertEqual(self.good("run", *asked, "--ask", self.ASKED, "--ask", other), f"{self.ASKED}\n{alone[0]}\n{other}\n{alone[1]}")
        first, second = json.loads(self.good("run", *asked, "--json", "--ask", self.ASKED, "--ask", other))
        self.assertEqual([first["ask"], second["ask"]], [self.ASKED, other])
        self.assertEqual([first["text"] + "\n", second["text"] + "\n"], alone)
        self.assertEqual(first["cached_tokens"], 0)
        self.assertGreater(second["cached_tokens"], 0.9 * second["prompt_tokens"])

    def test_what_cannot_be_asked(self):
        base = ["-m", MODEL, "-p", "one two three", "--ask", "What?"]
        self.bad("run", *base, "--ask", "Who?", "--trace", self.trace, says=["--trace", "--ask"])
        self.bad("run", *base, "--question", "two", code=2, says=["--question", "--ask"])
        self.bad("run", *base, "--query-span", "0:1", code=2, says=["--query-span", "--ask"])
        self.bad("run", *base[:-1], " ", code=2, says=["--ask", "empty"])
        self.bad("compare", *base, "--ask", "Who?", "--prune", "ftp", says=["--ask", "one question"])
        self.bad("run", *base[:-2], "--question", "four", says=["--question", "'four'", "--ask"])

    def test_stdin(self):
        base = ["-m", MODEL, "-n", "8", "--temp", "0"]
        want = self.good("run", *base, "-f", PROMPT_2K)
        whole = pathlib.Path(PROMPT_2K).read_bytes()
        self.assertEqual(self.good("run", *base, "-f", "-", input=whole), want)
        self.assertEqual(self.good("run", *base, input=whole), want)
        self.assertEqual(self.good("run", *base, "--ask", self.ASKED, input=self.DOCUMENT.encode()),
                         self.good("run", *base, "--ask", self.ASKED, "-f", self.file))
        ids = self.good("tokenize", "-m", MODEL, "--ids", "-p", "a b c")
        self.assertEqual(self.good("tokenize", "-m", MODEL, "--ids", input=b"a b c"), ids)
        self.assertEqual(self.good("tokenize", "-m", MODEL, "--ids", "-p", "a b c", input=b"left alone"), ids)
        for more in ([], ["-f", "-"]):
            self.bad("run", *base, *more, says=["no prompt", "-p TEXT", "stdin"])
        closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" <&-', PROGRAM, "run", *base], capture_output=True, timeout=60 * patience(PROGRAM))
        self.assertEqual((closed.returncode, closed.stdout), (1, b""))
        self.assertIn(b"no prompt", closed.stderr)

    def test_interrupt_while_it_waits_for_stdin(self):
        process = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"once")
        process.stdin.flush()
        ignored = pathlib.Path(f"/proc/{process.pid}/status")
        while int(re.search(r"SigCgt:\s*(\w+)", ignored.read_text())[1], 16) >> (signal.SIGINT - 1) & 1 == 0:  # it handles SIGINT
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60 * patience(PROGRAM)), 130)
        self.assertEqual(process.stderr.read(), b"coppice: interrupted\n")
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


class Session(Case):
    """coppice chat, with a pipe as its terminal."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model, self.file = f"{folder.name}/chat.gguf", f"{folder.name}/report.txt"
        write_chat_model(MODEL, self.model)
        pathlib.Path(self.file).write_text("Ada is tall. Hugo is wise.\n" * 20)
        self.base = ["-m", self.model, "--temp", "0", "-n", "6", "--ignore-eos"]

    def say(self, lines, *args):
        return run("chat", *self.base, *args, input=lines.encode())

    def test_answers_know_what_was_said(self):
        done = self.say("Who is tall?\n\n  \nAnd who is wise?\n/exit\nNever asked\n", "-f", self.file, "--system", "Be brief.")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second = re.fullmatch(r"> Who is tall\?\n(.*)\n> And who is wise\?\n(.*)\n", done.stdout.decode(), re.DOTALL).groups()
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": pathlib.Path(self.file).read_text()}]
        for question, answer in (("Who is tall?", first), ("And who is wise?", second)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(messages, file)
                file.flush()
                want = self.good("run", *self.base, "--messages", file.name, "--ask", question)
            self.assertEqual(answer + "\n", want)
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        said = done.stderr.decode().splitlines()
        self.assertEqual(len(said), 2, said)
        self.assertRegex(said[0], r"^read \d+ tokens in .* \(cut at 6 tokens: -n\)$")
        self.assertRegex(said[1], r"^read \d+ tokens in .* s, \d+ tokens of them from the document cache; \d+ % of the work")

    def test_ends_and_errors(self):
        done = self.say("", "-q")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        done = self.say("Who?", "-q")  # a last line without an end
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.startswith(b"> Who?\n"))
        done = self.say("much too long " * 200 + "\nWho?\n", "-q", "-c", "64")  # the session goes on
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\Acoppice: .*64.*\n\Z")
        self.assertRegex(done.stdout.decode(), r"\n> Who\?\n.+\n\Z")
        self.bad("chat", *self.base, "-f", "-", says=["-f -"])
        self.bad("chat", *self.base, "-f", "/none.txt", says=["/none.txt"])
        self.bad("chat", *self.base, "--prune", "copice", says=["did you mean coppice?"])
        self.assertRegex(run("chat", "-m", MODEL).stderr.decode(), r"\Awarning: .* has no chat template, .*\n\Z")

    def test_an_interrupt_stops_the_answer_alone(self):
        process = subprocess.Popen([PROGRAM, "chat", "-m", self.model, "--ignore-eos", "--temp", "0", "-q"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"First?\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"> First?\n")
        self.assertTrue(process.stdout.read(1))  # it answers, and would go on until the context is full
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"/exit\n")
        _, err = process.communicate(timeout=60 * patience(PROGRAM))
        self.assertEqual((process.returncode, err), (0, b""))


class Traces(Case):
    def test_file_in_page_out(self):
        with tempfile.TemporaryDirectory() as folder:
            file, page = f"{folder}/run.jsonl", f"{folder}/page.html"
            ran = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "6", "--ignore-eos", "--temp", "0", "--json",
                                       "--prune", "lazyllm:layers=4/6,keep=0.3,min=0", "--trace", file))
            lines = [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()]
            header, layers, steps = lines[0], lines[1:11], lines[11:]
            self.assertEqual((header["layers"], header["prompt_tokens"], header["steps"]), (10, ran["prompt_tokens"], 5))
            self.assertEqual((len(layers), len(steps)), (10, 5))
            self.assertEqual(header["prune"], ran["prune"]["spec"])
            answer = "".join(t for t in header["tokens"][ran["prompt_tokens"]:] if isinstance(t, str))
            self.assertTrue(answer.strip(), header["tokens"][ran["prompt_tokens"]:])
            self.assertIn(answer, ran["text"])

            kept = []  # left out: as in the layer before
            for layer in layers:
                kept.append(len(positions_of(layer["kept"])) if "kept" in layer else kept[-1])
            self.assertEqual(kept, ran["prune"]["kept_per_layer"])
            revived = sum(len(positions_of(event["positions"])) for step in steps for event in step["events"] if event["kind"] == "revived")
            self.assertGreater(revived, 0)
            self.assertEqual(ran["prune"]["token_layers"], sum(kept) + 10 * len(steps) + revived)
            for key in ["kv_bytes", "aux_bytes", "cold_bytes"]:
                self.assertEqual(steps[-1][key], ran["prune"][key], key)

            self.assertEqual(self.good("trace", file, "-o", page), "")
            html = pathlib.Path(page).read_text()
            self.assertTrue(html.startswith("<!DOCTYPE html>") and html.rstrip().endswith("</html>"))
            self.assertIn("lazyllm", html)
            self.assertNotIn("http://", html.replace("http://www.w3.org/", ""))
            self.good("trace", file, "--output", page)  # over the old one, byte for byte the same
            self.assertEqual(pathlib.Path(page).read_text(), html)
            self.assertEqual(sorted(os.listdir(folder)), ["page.html", "run.jsonl"])

            self.bad("trace", file, code=2, says=["--output"])
            self.bad("trace", "-o", page, code=2, says=["file"])
            self.bad("trace", file, "-o", f"{folder}/none/page.html", says=[f"{folder}/none/page.html"])
            self.bad("trace", file, "-o", folder, says=[folder])
            self.bad("trace", file, "-o", "/dev/full", says=["/dev/full"])

    def test_bad_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file, page = f"{folder}/run.jsonl", f"{folder}/page.html"
            self.good("run", "-m", MODEL, "-p", "Once upon a time", "-n", "3", "--ignore-eos", "--trace", file)
            whole = pathlib.Path(file).read_bytes()
            lines = whole.split(b"\n")
            pathlib.Path(page).write_text("old")  # and stays
            for bad in [b"", b"\n", b"{}\n", b"not a trace\n", whole[:len(whole) // 2], b"\n".join(lines[:-2]) + b"\n",
                        whole.replace(b'"kept":"0', b'"kept":"9-0', 1), bytes([255]) + whole]:
                pathlib.Path(file).write_bytes(bad)
                self.bad("trace", file, "-o", page, says=[file])
                self.assertEqual(pathlib.Path(page).read_text(), "old", bad[:40])
            self.bad("trace", f"{folder}/none.jsonl", "-o", page, says=[f"{folder}/none.jsonl"])
            self.bad("trace", MODEL, "-o", page, says=[MODEL])
            self.bad("trace", folder, "-o", page, says=[folder])
            self.assertEqual(sorted(os.listdir(folder)), ["page.html", "run.jsonl"])
            self.bad("run", "-m", MODEL, "-p", "Once", "-n", "1", "--trace", f"{folder}/none/run.jsonl",
                     says=[f"{folder}/none/run.jsonl"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
