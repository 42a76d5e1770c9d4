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
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertEqual(done.stdout, b"")
        message = done.stderr.decode()
        if code == 1:
            self.assertEqual(message.count("\n"), 1, f"not one line: {message!r}")
        for part in says:
            self.assertIn(part, message)


class Run(Case):
    def test_answers_densely_and_pruned(self):
        for prune in ["none", "ftp", "sliminfer:min=0", "sliminfer:min=0+ftp:eta=0.9"]:
            out = self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "8", "--temp", "0", "--prune", prune)
            self.assertIn(ANSWER_2K, out, prune)

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

    def test_trace_becomes_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, page = f"{folder}/run.jsonl", f"{folder}/page.html"
            spec = "sliminfer:keep=0.25/0.125/0.0625,min=0+ftp:dense=2"
            self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", "4", "--temp", "0", "--prune", spec, "--trace", trace)
            self.assertEqual(self.good("trace", trace, "-o", page), "")
            text = pathlib.Path(page).read_text(encoding="utf-8")
            self.assertTrue(text.startswith("<!DOCTYPE html>"))
            self.assertIn("sliminfer:layers=", text)
            self.assertNotRegex(text, r"""(src|href)=["']?https?:""")
            whole = pathlib.Path(trace).read_bytes()
            for wrong in [b"", b"{}\n", whole[:len(whole) // 2], whole + b"{}\n", b"\xff" * 100]:
                pathlib.Path(trace).write_bytes(wrong)
                self.bad("trace", trace, "-o", page, says=[trace])
            self.assertEqual(pathlib.Path(page).read_text(encoding="utf-8"), text, "the old page is lost")
            pathlib.Path(trace).write_bytes(whole)
            self.bad("trace", trace, "-o", f"{folder}/none/page.html", says=["none/page.html"])
            self.bad("trace", trace, "-o", folder, says=["not a regular file"])
            self.bad("trace", f"{folder}/none.jsonl", "-o", page, says=["none.jsonl"])
            self.assertEqual(sorted(os.listdir(folder)), ["page.html", "run.jsonl"])

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
        self.assertIn("| prompt |", self.good(*shape))
        self.assertEqual(len(self.good(*shape, "-o", "csv").splitlines()), 2)
        self.assertEqual(len(json.loads(self.good(*shape, "-o", "json"))), 1)

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


class Isa(Case):
    def test_unknown_isa(self):
        done = run("run", "-m", MODEL, "-p", "x", env={**os.environ, "COPPICE_ISA": "mmx"})
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"COPPICE_ISA=mmx", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
