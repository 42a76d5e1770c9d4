"""What the program says of bad input: options, values, files that are missing, cut short, foreign, full disks.

    cli_bad_input_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time
import unittest

from cli_support import Case, MODEL, PROGRAM, PROMPT_2K, SHARED, needs_shared, run


class Usage(Case):
    def test_wrong_usage(self):
        self.bad("run", code=2, says=["--model"])
        self.bad("run", "-m", MODEL, "--no-such-option", code=2, says=["--no-such-option"])
        self.bad("walk", code=2, says=["not expected: walk"])
        self.bad("run", "-m", MODEL, "-p", "x", "-ngx", "0", code=2, says=["-ngx"])
        self.bad("inspect", MODEL, "--json", "--tensors", code=2, says=["--tensors excludes --json"])

    def test_bad_values_name_themselves(self):
        base = ["run", "-m", MODEL, "-p", "x", "-n", "1"]
        self.bad(*base, "--top-p", "0", says=["--top-p"])
        self.bad(*base, "--temp", "nan", says=["--temp"])
        self.bad(*base, "-n", "-5", says=["--predict"])
        for spec, part in [("lazy", "no method 'lazy': did you mean lazyllm?"), ("ftp:etta=1", "unknown key 'etta': did you mean eta?"), ("ftp:eta=2", "eta=2"),
                           ("ftp:eta=nan", "eta=nan"), ("sliminfer:layers=10", "layers=10"), ("sliminfer:layers=6/4", "ascend"),
                           ("sliminfer:keep=1/2", "keep has 2 values"), ("ftp+ftp", "'ftp' stands twice"), ("", "name is missing")]:
            self.bad(*base, "--prune", spec, says=["--prune", part])

    def test_context(self):
        tokens = len(json.loads(self.good("tokenize", "-m", MODEL, "-p", "one two three", "--ids")))
        args = ["run", "-m", MODEL, "-p", "one two three", "--json"]
        out = json.loads(self.good(*args, "-c", str(tokens)))
        self.assertEqual((out["generated_tokens"], out["finish_reason"]), (0, "length"))
        self.bad(*args, "-c", str(tokens - 1), says=["--ctx-size", f"{tokens} tokens"])


class Isa(Case):
    def test_unknown_isa(self):
        done = run("run", "-m", MODEL, "-p", "x", env={**os.environ, "COPPICE_ISA": "mmx"})
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"COPPICE_ISA=mmx", done.stderr)


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
        spec = "sliminfer:layers=4,keep=0.5,decode_keep=0.2,gamma=2,min=0"  # blocks come and go
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
                self.assertIsNone(process.poll(), "it ended before it wrote")
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

    def test_templates_and_options_of_llama_cpp(self):
        self.bad("run", "-m", MODEL, "-p", "x", "--chat", "--chat-template", "{% oops", says=["chat template"])
        self.bad("run", "-m", MODEL, "-p", "x", "-hf", "a/b", code=2, says=["--hf-repo", "downloads nothing"])
        self.bad("run", "-m", MODEL, "-p", "x", "-ctk", "q4_0", code=2, says=["--cache-type-k", "q4_0"])

    def test_a_missing_or_unknown_pre_tokenizer_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "m.gguf")
            self.good("synth", "--shape", "tiny", "-o", str(path))
            whole = path.read_bytes()
            for old, new, says in [(b"llama-bpe", b"llama-bpx", 'is "llama-bpx"'), (b"tokenizer.ggml.pre", b"tokenizer.ggml.prx", "is missing")]:
                self.assertEqual(whole.count(old), 1)
                path.write_bytes(whole.replace(old, new))
                for command in [["run", "-q", "-p", "x", "-n", "1", "-m"], ["inspect"], ["tokenize", "-p", "x", "-m"]]:
                    done = run(*command, str(path))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(f"warning: {path}: tokenizer.ggml.pre {says}", done.stderr.decode())
                    self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
                    self.assertEqual(command == ["inspect"], f"tokenizer.ggml.pre {says}" in done.stdout.decode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
