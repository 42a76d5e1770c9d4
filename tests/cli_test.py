"""The program from outside: every command, its output, its exit codes, and what it says of bad input.

    cli_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
SHARED = SOURCE.parent / "shared"
MODEL = str(SOURCE / "models/coppice-mini-f16.gguf")
PROMPT_2K = str(SOURCE / "tests/data/prompt-2k.txt")
ANSWER_2K = (SOURCE / "tests/data/prompt-2k.answer").read_text().strip()


def run(*args, timeout=300, **kwargs):
    return subprocess.run([PROGRAM, *args], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, **kwargs)


def needs_shared(test):
    return unittest.skipUnless(SHARED.is_dir(), f"{SHARED} is absent")(test)


class Case(unittest.TestCase):
    def good(self, *args, **kwargs):
        done = run(*args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stderr, b"", "stderr is no terminal: nothing may be written to it")
        return done.stdout.decode()

    def bad(self, *args, code=1, says=()):
        done = run(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, b"")
        message = done.stderr.decode()
        if code == 1:
            self.assertEqual(message.count("\n"), 1, f"not one line: {message!r}")
        for part in says:
            self.assertIn(part, message)


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

    def test_stands_aside(self):
        out = json.loads(self.good("run", "-m", MODEL, "-p", "Hello", "-n", "1", "--json", "--prune", "sliminfer+ftp"))
        self.assertFalse(out["prune"]["active"])
        self.assertIn("below its break-even of 4096", out["prune"]["reason"])

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
                "sliminfer:layers=4,keep=128,block=64,min=0"]
        plain = json.loads(self.good(*args))["prune"]["kept_per_layer"][4]
        more = json.loads(self.good(*args, "--protect-first", "500", "--protect-last", "300"))["prune"]["kept_per_layer"][4]
        self.assertLessEqual(plain, 128)
        self.assertGreaterEqual(more, 800)

    def test_wrong_usage(self):
        self.bad("run", code=2, says=["--model"])
        self.bad("run", "-m", MODEL, "--no-such-option", code=2, says=["--no-such-option"])
        self.bad("walk", code=2)
        self.bad("run", "-m", MODEL, "-p", "x", "-ngl", "0", code=2, says=["-ngl"])
        self.bad("inspect", MODEL, "--json", "--tensors", code=2)

    def test_bad_values_name_themselves(self):
        base = ["run", "-m", MODEL, "-p", "x", "-n", "1"]
        self.bad(*base, "--top-p", "0", says=["--top-p"])
        self.bad(*base, "--temp", "nan", says=["--temp"])
        self.bad(*base, "-n", "-5", says=["--predict"])
        for spec, part in [("lazy", "no method 'lazy'"), ("ftp:etta=1", "unknown key 'etta'"), ("ftp:eta=2", "eta=2"),
                           ("ftp:eta=nan", "eta=nan"), ("sliminfer:layers=10", "layers=10"), ("sliminfer:layers=6/4", "ascend"),
                           ("sliminfer:keep=1/2", "keep has 2 values"), ("ftp+ftp", "'ftp' stands twice"), ("", "name is missing")]:
            self.bad(*base, "--prune", spec, says=["--prune", part])

    def test_context(self):
        tokens = len(json.loads(self.good("tokenize", "-m", MODEL, "-p", "one two three", "--ids")))
        args = ["run", "-m", MODEL, "-p", "one two three", "--json"]
        out = json.loads(self.good(*args, "-c", str(tokens)))
        self.assertEqual((out["generated_tokens"], out["finish_reason"]), (0, "length"))
        self.bad(*args, "-c", str(tokens - 1), says=["--ctx-size", f"{tokens} tokens"])

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
                              stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, timeout=300)
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
        self.assertIn("prompt tokens, first token after", shown.decode())


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
        self.assertRegex(self.good("--version"), r"^coppice \d+\.\d+\.\d+ ")
        self.assertIn("Examples:", self.good("run", "--help"))

    def test_methods_lists_every_method_with_its_keys(self):
        out = self.good("methods")
        for word in ["ftp", "sliminfer", "eta", "arXiv", "block"]:
            self.assertIn(word, out)

    def test_compare(self):
        rows = json.loads(self.good("compare", "-m", MODEL, "-f", PROMPT_2K, "-n", "8", "-r", "1", "--expect", ANSWER_2K,
                                    "--prune", "ftp", "--prune", "sliminfer", "--json"))
        self.assertEqual([row["prune"]["active"] for row in rows], [False, True, False])
        self.assertEqual([row["right"] for row in rows], [True, True, True])
        self.assertEqual(rows[0]["prune"]["flops"], rows[0]["prune"]["flops_dense"])
        text = self.good("compare", "-m", MODEL, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "ftp")
        self.assertRegex(text, r"(?m)^dense +100 % / 100 %")

    def test_perplexity(self):
        base = ["perplexity", "-m", MODEL, "-f", PROMPT_2K]
        text = self.good(*base, "-c", "256", "--chunks", "3")
        self.assertRegex(text, r"^\[1\]\d+\.\d{4},\[2\]\d+\.\d{4},\[3\](\d+\.\d{4}),\nFinal estimate: PPL = \1 \+/- \d+\.\d+\n$")
        exact = json.loads(self.good(*base, "--chunks", "2", "--exact", "--kl-divergence", "--json"))
        self.assertEqual((exact["tokens"], exact["kl"], exact["same_top"]), (2 * 255, 0, 1))
        fast = json.loads(self.good(*base, "--chunks", "2", "--kl-divergence", "--json"))
        self.assertAlmostEqual(fast["ppl"] / fast["ppl_ratio"], exact["ppl"], delta=1e-6 * exact["ppl"])
        self.assertLess(fast["kl"], 1e-3)
        # A method that drops half of the text at random is further away than one that skips FFNs.
        pruned = [json.loads(self.good(*base, "-c", "512", "--chunks", "2", "--json", "--prune", spec))
                  for spec in ["ftp:eta=0.9,min=0", "random:keep=0.3,min=0"]]
        self.assertEqual(pruned[0]["tokens"], 2 * 256)
        self.assertGreater(pruned[0]["kl"], 0)
        self.assertGreater(pruned[1]["kl"], pruned[0]["kl"])
        self.assertIn("mean KL divergence", self.good(*base, "-c", "64", "--chunks", "1", "--base", MODEL))
        self.bad(*base, "-c", "30000", says=["prompt-2k.txt", "30000"])
        self.bad("perplexity", "-m", MODEL, "-f", "/none.txt", says=["/none.txt"])
        self.bad(*base, "--prune", "no", "--chunks", "1", says=["no method 'no'"])

    def test_selective_context(self):
        spec = f"selective:model={MODEL},keep=0.5"
        answer = json.loads(self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "1", "--temp", "0", "--prune", spec, "--json"))
        prune = answer["prune"]
        self.assertTrue(prune["active"])
        self.assertGreater(prune["selection_flops"], 0)
        self.assertLess(prune["kept_per_layer"][0], 0.7 * answer["prompt_tokens"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "selective:model=/none.gguf", says=["/none.gguf"])
        self.bad("run", "-m", MODEL, "-f", PROMPT_2K, "--prune", "selective", says=["model= is missing"])

    def test_inspect(self):
        out = self.good("inspect", MODEL, "--tensors", "--check-tensors")
        for part in ["coppice-mini", "7.78 M", "blk.9.ffn_down.weight", "256 x 688", "all tensors are finite"]:
            self.assertIn(part, out)

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

    def test_bench_output_forms(self):
        shape = ["bench", "--shape", "tiny", "-p", "64", "-r", "1"]
        tables = self.good(*shape)
        self.assertIn("| prompt |", tables)
        for column in ["TTFT ms", "tokens/s", "FLOP bound", "time bound", "peak memory", "products ms", "attention ms"]:
            self.assertIn(f" {column} |", tables)
        csv = self.good(*shape, "-o", "csv").splitlines()
        self.assertEqual(len(csv), 2)
        self.assertEqual(csv[0].count(","), csv[1].count(","))
        self.assertEqual(len(json.loads(self.good(*shape, "-o", "json"))), 1)

    def test_bench_says_where_the_time_goes(self):
        spec = "sliminfer:layers=1,keep=128,min=0"
        dense, pruned = json.loads(self.good("bench", "--shape", "tiny:q8_0", "-p", "512", "-n", "4", "-r", "3", "-o", "json",
                                             "--prune", spec))
        for row in [dense, pruned]:
            parts = ["pack", "product", "decode_product", "attention", "scoring", "rows", "selection", "other"]
            for kind in ["pack", "product", "decode_product", "attention", "rows"]:
                self.assertGreater(row[f"{kind}_ms"], 0, kind)
            self.assertAlmostEqual(sum(row[f"{kind}_ms"] for kind in parts), row["ttft_ms"])
            self.assertGreater(row["flops"], row["product_flops"] + row["attention_flops"])  # single rows
            for kind in ["product", "attention"]:
                self.assertAlmostEqual(row[f"{kind}_tflops_per_second"], row[f"{kind}_flops"] / row[f"{kind}_ms"] / 1e9)
            self.assertGreater(row["peak_bytes"], row["weights_bytes"])
            self.assertLessEqual(row["decode_tokens_per_second_min"], row["decode_tokens_per_second_max"])
            self.assertEqual((row["type"], row["rounds"]), ("Q8_0", 3))
            for bound in ["time_bound", "rate_bound"]:
                self.assertAlmostEqual(row["speed_up"] / row[bound], row[f"share_of_{bound}"])
        self.assertEqual(dense["scoring_ms"], 0)
        self.assertGreater(pruned["scoring_ms"], 0)
        self.assertAlmostEqual(dense["time_bound"], 1)
        self.assertAlmostEqual(dense["rate_bound"], 1)
        # The dense run's time with products and attention scaled to what the method computes of each.
        scaled = {kind: dense[f"{kind}_ms"] * pruned[f"{kind}_flops"] / dense[f"{kind}_flops"] for kind in ["product", "attention"]}
        both = dense["product_ms"] + dense["attention_ms"]
        self.assertAlmostEqual(pruned["time_bound"], dense["ttft_ms"] / (dense["ttft_ms"] - both + sum(scaled.values())))
        self.assertAlmostEqual(pruned["rate_bound"], both / sum(scaled.values()))
        self.assertGreater(pruned["rate_bound"], pruned["time_bound"])
        self.assertEqual(self.good("bench", "--shape", "tiny", "-p", "64", "-r", "1", "--no-warmup").count("| none "), 2)

    def test_bench_second_question(self):
        spec = "sliminfer:layers=1,keep=128,min=0"
        rows = json.loads(self.good("bench", "--shape", "tiny", "-p", "1024", "-n", "2", "-r", "2", "-o", "json",
                                    "--second", "40", "--prune", "none", "--prune", spec, "--no-warmup"))
        self.assertEqual([(r["prune"].split(":")[0], r["second_question"], r["cached_tokens"]) for r in rows],
                         [("none", 0, 0), ("sliminfer", 0, 0), ("none", 40, 984), ("sliminfer", 40, 984)])
        for first, second in [(rows[0], rows[2]), (rows[1], rows[3])]:
            self.assertLess(second["flops"], first["flops"] / 2)
            self.assertEqual(second["rounds"], 2)
        # Products and attention at the dense run's rates, its packing, and of the rest as large a part as of the products.
        dense, second = rows[0], rows[3]
        part = {kind: second[f"{kind}_flops"] / dense[f"{kind}_flops"] for kind in ["product", "attention"]}
        rest = dense["ttft_ms"] - dense["product_ms"] - dense["attention_ms"] - dense["pack_ms"]
        bound = dense["pack_ms"] + sum(part[kind] * dense[f"{kind}_ms"] for kind in part) + rest * part["product"]
        self.assertAlmostEqual(second["time_bound"], dense["ttft_ms"] / bound)
        table = self.good("bench", "--shape", "tiny", "-p", "512", "-r", "1", "--second", "40")
        self.assertIn("| none, question 2 of 40 ", table)
        self.bad("bench", "--shape", "tiny", "-p", "40", "--second", "40", says=["--second 40", "40"])
        self.bad("bench", "--shape", "tiny", "-p", "64", "--second", "0", code=2, says=["--second: 0 is not a number above 0"])
        self.bad("bench", "--dry-run", "--shape", "tiny", "-p", "64", "--second", "4", says=["--second"])

    def test_bench_dry_run(self):
        rows = json.loads(self.good("bench", "--dry-run", "--shape", "llama-3.1-8b", "-p", "32768,131072", "-o", "json",
                                    "--prune", "sliminfer", "--prune", "lazyllm", "--prune", "snapkv", timeout=60))
        self.assertEqual([(r["prompt"], r["prune"].split(":")[0]) for r in rows],
                         [(n, m) for n in (32768, 131072) for m in ("none", "sliminfer", "lazyllm", "snapkv")])
        # The published bounds of this shape with the last layer's rule.
        for row, bound in zip(rows, [1, 2.55, 1.95, 1, 1, 3.08, 2.15, 1]):
            self.assertAlmostEqual(row["flop_bound"], bound, delta=0.02, msg=row["prune"])
            self.assertAlmostEqual(row["flop_bound"], row["flops_dense"] / row["flops"])
            self.assertEqual(row["kv_bytes_dense"], 131072 * row["prompt"])  # 128 KiB a token
        self.assertEqual(rows[0]["kv_bytes"], rows[0]["kv_bytes_dense"])
        self.assertLess(rows[3]["kv_bytes"], rows[3]["kv_bytes_dense"] / 4)
        self.assertGreater(rows[2]["aux_bytes"], 0)
        table = self.good("bench", "--dry-run", "-m", MODEL, "-p", "4096", "--prune", "ftp")
        self.assertIn("nothing was run", table)
        self.assertIn("| FLOP bound |", table)
        self.bad("bench", "--dry-run", "--shape", "tiny", "-p", "100", "--prune", "ftp:eta=7", says=["eta"])
        self.bad("bench", "--dry-run", says=["--shape"])

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


class BadFiles(Case):
    def test_missing_and_foreign(self):
        self.bad("run", "-m", "/nonexistent.gguf", "-p", "x", says=["/nonexistent.gguf"])
        self.bad("run", "-m", PROMPT_2K, "-p", "x", says=["prompt-2k.txt"])
        self.bad("run", "-m", MODEL, "-f", "/nonexistent.txt", says=["/nonexistent.txt"])
        self.bad("run", "-m", MODEL, "-f", "/tmp", says=["/tmp: is a folder"])
        self.bad("run", "-m", MODEL, says=["-p TEXT"])

    def test_truncated(self):
        whole = pathlib.Path(MODEL).read_bytes()
        for size in [4, 8, 16, 24, 1000, 40000, len(whole) - 1]:
            with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
                file.write(whole[:size])
                file.flush()
                self.bad("run", "-m", file.name, "-p", "x", says=[file.name])

    def test_messages_stay_on_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps({"model_type": "a\nb\u001b[31m"}))
            pathlib.Path(folder, "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
            done = run("inspect", folder)
            self.assertEqual((done.returncode, done.stderr.count(b"\n"), done.stderr.count(b"\x1b")), (1, 1, 0))

    def test_unread_output_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "methods"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, b"coppice: cannot write to stdout\n"))

    # As a full disk: the cold tier's file may not grow.
    def test_no_room_for_the_cold_tier(self):
        spec = "sliminfer:layers=4,keep=0.5,decode_keep=0.1,gamma=2,min=0"  # blocks come and go
        for io in ["auto", "threads", "sync"]:
            done = run("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "24", "--ignore-eos", "--temp", "0", "--prune", spec,
                       "--cold-io", io, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr.decode(), r"\Acoppice: \[cold tier\].*\n\Z")

    def test_synth_replaces_files_only_and_leaves_nothing_when_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/pipe")
            self.bad("synth", "--shape", "tiny", "-o", f"{folder}/pipe", says=["not a regular file"])
            process = subprocess.Popen([PROGRAM, "synth", "--shape", "llama-3.2-1b:q8_0", "-o", f"{folder}/big.gguf"],
                                       stderr=subprocess.PIPE)
            while not any(name.endswith(".part") for name in os.listdir(folder)):
                time.sleep(0.01)
            process.terminate()
            _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (130, b"coppice: interrupted\n"))
            self.assertEqual(os.listdir(folder), ["pipe"])

    def test_pipe_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/pipe")
            self.bad("inspect", f"{folder}/pipe", says=[f"{folder}/pipe"])

    @needs_shared
    def test_old_formats_are_refused(self):
        self.bad("inspect", str(SHARED / "models/stories260K/stories260K.gguf-v1.gguf"), says=["unsupported version"])
        self.bad("inspect", str(SHARED / "models/stories260K/stories260K.bin"), says=["stories260K.bin"])

    @needs_shared
    def test_vocabulary_alone_is_no_model(self):
        self.bad("run", "-m", str(SHARED / "data/tokenizer/ggml-vocab-llama-spm.gguf"), "-p", "x", says=["token_embd.weight"])
        self.bad("run", "-m", str(SHARED / "data/tokenizer/ggml-vocab-gpt-2.gguf"), "-p", "x", says=["'gpt2' is not supported"])

    @needs_shared
    def test_no_chat_template(self):
        self.bad("run", "-m", MODEL, "-p", "x", "--chat", says=["chat template"])


def with_chat_template(template, path):
    """A copy of the bundled model with a chat template: one more key of the header, of a length that moves nothing."""
    def text(data):
        return len(data).to_bytes(8, "little") + data
    key = text(b"tokenizer.chat_template") + (8).to_bytes(4, "little")
    value = template.encode()
    value += b" " * (-(len(key) + 8 + len(value)) % 32)
    whole = pathlib.Path(MODEL).read_bytes()
    keys = int.from_bytes(whole[16:24], "little") + 1
    path.write_bytes(whole[:16] + keys.to_bytes(8, "little") + key + text(value) + whole[24:])


def positions_of(text):
    ends = [run.split("-") for run in text.split(",") if run]
    return [p for end in ends for p in range(int(end[0]), int(end[-1]) + 1)]


class Chat(Case):
    def test_a_protected_message_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            model, file, trace = f"{folder}/chat.gguf", f"{folder}/chat.json", f"{folder}/run.jsonl"
            with_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}\n{% endfor %}answer:",
                               pathlib.Path(model))
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

            for prune in ["sliminfer:layers=2/5,keep=64/32,block=16,min=0", "lazyllm:layers=2/5,keep=0.1,min=0",
                          "static:layer=2,keep=0.1,min=0", "snapkv:cap=128,window=8,min=0"]:
                for layer in kept(prune):
                    self.assertIn(secret, layer, prune)
                    self.assertIn("Answer in one word.", layer, prune)  # a system message is protected by itself
            messages[0]["protect"] = messages[2]["protect"] = False
            last = kept("sliminfer:layers=2/5,keep=64/32,block=16,min=0")[-1]
            self.assertNotIn(secret, last)
            for bad in ["{}", "[]", "[1]", "not json", '[{"role": "user"}]', '[{"role": "user", "content": 1}]',
                        '[{"role": "user", "content": "x", "protect": 1}]']:
                pathlib.Path(file).write_text(bad)
                self.bad("run", "-m", model, "--messages", file, says=[file])
            self.bad("run", "-m", MODEL, "--messages", file, says=["chat template"])


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
            self.assertIn("".join(t for t in header["tokens"][ran["prompt_tokens"]:] if isinstance(t, str)), ran["text"])

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


class Eval(Case):
    def test_table_results_and_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ["eval", "niah", "-m", MODEL, "--lengths", "512", "--samples", "1", "--prune", "ftp", "-o", f"{folder}/out"]
            table = self.good(*command)
            lines = [line.rstrip() for line in table.splitlines()]
            self.assertEqual(len(lines), 4, table)
            self.assertTrue(lines[2].startswith("niah") and " dense " in lines[2], table)
            self.assertIn(" ftp", lines[3])
            rows = json.loads(pathlib.Path(f"{folder}/out/results.json").read_text())
            self.assertEqual([(row["task"], row["length"], row["prune"], row["n"]) for row in rows],
                             [("niah", 512, "none", 1), ("niah", 512, "ftp", 1)])
            for key in ["score", "ttft_ms", "flops_ratio", "kl"]:
                self.assertIsInstance(rows[1][key], (int, float), key)
            samples = pathlib.Path(f"{folder}/out/samples.jsonl").read_bytes()
            self.assertEqual(self.good(*command), table)  # nothing is run again
            self.assertEqual(pathlib.Path(f"{folder}/out/samples.jsonl").read_bytes(), samples)
            self.bad(*command, "--seed", "2", says=["samples.jsonl", "seed"])
            # The page is there, and is made again from the samples alone.
            page = pathlib.Path(f"{folder}/out/report.html")
            drawn = page.read_text()
            self.assertIn("Needle in a haystack", drawn)
            page.unlink()
            self.assertEqual(self.good("report", f"{folder}/out", "--pictures", f"{folder}/pictures"), f"{page}\n")
            self.assertEqual(page.read_text(), drawn)
            self.assertIn("needles.svg", os.listdir(f"{folder}/pictures"))
            self.bad("report", folder, says=[f"{folder}/samples.jsonl"])
            self.bad("report", f"{folder}/none", says=[f"{folder}/none"])

    def test_wrong_use(self):
        self.assertIn("ruler/vt", self.good("eval", "--list"))
        with tempfile.TemporaryDirectory() as folder:
            out = ["-m", MODEL, "-o", f"{folder}/out"]
            self.bad("eval", "nothing", *out, says=["nothing"])
            self.bad("eval", *out, says=["name a task"])
            self.bad("eval", "niah", "-m", MODEL, says=["-o"])
            self.bad("eval", "niah", "-o", folder, says=["--model"])
            self.bad("eval", "longbench", *out, says=["--data"])
            self.bad("eval", "longbench/lcc", *out, "--data", folder, says=["lcc.jsonl"])
            self.bad("eval", "longbench", *out, "--data", folder, says=["jsonl"])
            self.bad("eval", "niah", *out, "--lengths", "0", code=2, says=["--lengths"])
            self.bad("eval", "niah", *out, "--samples", "0", code=2, says=["--samples"])
            self.bad("eval", "niah", *out, "--prune", "what", says=["what"])
            self.bad("eval", "niah", "-m", MODEL, "-o", "/dev/null/x", says=["/dev/null/x"])
            pathlib.Path(f"{folder}/empty.txt").write_text("")
            self.bad("eval", "niah", *out, "--haystack", f"{folder}/empty.txt", says=["empty.txt"])


class Tune(Case):
    def test_finds_a_schedule_or_says_that_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ["tune", "-m", MODEL, "-t", "1", "--tasks", "niah", "--lengths", "2048", "--samples", "2", "--needles", "2",
                       "--methods", "static:layer=5,keep=0.5", "-o", f"{folder}/out"]
            lines = self.good(*command, "--budget", "1%", "--out", f"{folder}/spec.txt").splitlines()
            self.assertTrue(lines[-1].startswith("static:"), lines)
            self.assertEqual(pathlib.Path(f"{folder}/spec.txt").read_text(), lines[-1] + "\n")
            self.assertIn("meets the budget", "\n".join(lines))
            done = run(*command, "--budget", "kl=0", "--out", f"{folder}/none.txt")
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"nothing meets the budget of KL 0: the nearest is static:", done.stderr)
            self.assertFalse(os.path.exists(f"{folder}/none.txt"))
            self.bad(*command, "--budget", "1", says=["--budget 1"])
            self.bad(*command, "--budget", "1%", "--methods", "h2o", says=["--methods h2o"])
            self.bad(*command, code=2, says=["--budget"])


class Isa(Case):
    def test_unknown_isa(self):
        done = run("run", "-m", MODEL, "-p", "x", env={**os.environ, "COPPICE_ISA": "mmx"})
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"COPPICE_ISA=mmx", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
