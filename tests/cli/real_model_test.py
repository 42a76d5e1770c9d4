"""A real model through its own chat template: what `make demo` shows. Skips (77) where tools/fetch_models.sh could not
fetch the model. COPPICE_LONG=1 runs the whole document densely and by every method of the demo too, and every form of `auto`, which takes
minutes.

    real_model_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cli_support import Case, PROGRAM, SOURCE
from server_support import Server

sys.path.append(str(SOURCE / "benchmarks"))
from fallback_signal import document  # noqa: E402


LONG = "COPPICE_LONG" in os.environ


def demo_arguments():
    """Of `make demo`: the options of one run, its methods, the text that a right answer holds."""
    lines = subprocess.run(["make", "-s", "demo-arguments"], cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    command, *words = lines.splitlines()
    assert command == "compare"
    options, methods, expect = [], [], ""
    while words:
        word = words.pop(0)
        if word == "--prune":
            methods.append(words.pop(0))
        elif word in ["--baseline", "-r"]:
            words.pop(0)
        elif word == "--expect":
            expect = words.pop(0)
        else:
            options.append(word)
    return options, methods, expect


def calibrated(folder):
    """The model under another name, with a calibration for 3,000 to 6,000 tokens that was measured on all kinds of question."""
    model = pathlib.Path(folder, "model.gguf")
    model.symlink_to(MODEL.resolve())
    shipped = json.loads((SOURCE / "models/calibrations" / (MODEL.stem + ".json")).read_text())
    kinds = ["one_fact", "competing_facts", "several_keys", "several_values", "several_queries"]
    entry = {"loss": 0.01, "length": 4096, "min_tokens": 3000, "max_tokens": 6000, "prune": "coppice", "kinds": kinds,
             "held_out": {"score": 100, "dense": 100, "n": 5}}
    shipped["entries"] = [entry]
    pathlib.Path(f"{model}.coppice.json").write_text(json.dumps(shipped))
    return model


class Demo(Case):
    def test_every_method_answers_right(self):
        options, methods, expect = demo_arguments()
        self.assertGreater(len(methods), 1)
        for prune in ["none", *methods] if LONG else methods[1:3]:
            out = json.loads(self.good("run", *options, "--temp", "0", "--json", "--prune", prune, cwd=SOURCE))
            self.assertIn(expect, out["text"], prune)
            if prune not in ["none", "auto"]:
                self.assertTrue(out["prune"]["active"], prune)
                self.assertLess(out["prune"]["flops"], 0.95 * out["prune"]["flops_dense"], prune)

    def test_auto_answers_right_with_and_without_the_question_marked(self):
        """A calibration of single facts chose a setting for one question that named another man."""
        options, _, expect = demo_arguments()
        at = options.index("--question")
        unmarked = options[:at] + options[at + 2:]
        for form in [options, unmarked] if LONG else [unmarked]:
            for prune in ["auto", "auto:loss=5%"] if LONG else ["auto"]:
                out = json.loads(self.good("run", *form, "--temp", "0", "--json", "--prune", prune, cwd=SOURCE))
                self.assertIn(expect, out["text"], [prune, form])
                self.assertIn("measured on", out["prune"]["auto"])

    def test_auto_reads_densely_what_no_calibration_measured(self):
        options, _, _ = demo_arguments()
        document = (SOURCE / "models/demo-document.txt").read_text().rsplit("\n", 1)[0]
        with tempfile.TemporaryDirectory() as folder:
            model = calibrated(folder)
            for end, says in [("\nSummarize the text.", "work on the whole text"), ("", "asks no question"), ("\nWho made it?", None)]:
                prompt = pathlib.Path(folder, "prompt.txt")
                prompt.write_text(document[-16000:] + end)
                out = json.loads(self.good("run", "-m", model, "-f", prompt, "--chat", "-n", "1", "--json", "--prune", "auto"))
                self.assertEqual(out["prune"]["active"], says is None, out["prune"])
                if says:
                    self.assertIn(says, out["prune"]["auto"])


class Fallback(Case):
    """Chats whose answers repeat the question first, of which pruning breaks some (docs/quality.md)."""

    def test_wrong_answers_are_caught_and_right_ones_kept(self):
        static, lazyllm = "static:layer=12,keep=0.3,min=0", "lazyllm:min=0"
        sliminfer = "sliminfer:min=0,keep=200/120/60"
        caught, kept = [], []
        for task, number, question, prune in [("codes", 1, 0, static), ("repeated", 2, 1, static), ("codes", 0, 1, lazyllm),
                                              ("codes", 6, 0, lazyllm), ("codes", 5, 1, sliminfer), ("repeated", 6, 1, sliminfer)]:
            text, asked = document(task, number, 500, 4, 1)
            prompt = f"{text}\n\n{asked[question][1]}"
            pruned, held = (json.loads(self.good("run", "-m", str(MODEL), "--chat", "-p", prompt, "-n", "40", "--temp", "0", "--json",
                                                 "--prune", prune, *more)) for more in ([], ["--fallback", "dense"]))
            fell_back = "fell_back" in held["prune"]
            (kept if asked[question][2] in pruned["text"] else caught).append(fell_back)
            self.assertTrue(fell_back or held["text"] == pruned["text"], (task, number, question, prune))
        # Of six answers three are wrong here; another instruction set rounds otherwise, and one may turn.
        self.assertGreaterEqual(len(caught), 2)
        self.assertGreaterEqual(sum(caught), len(caught) - 1)
        self.assertLessEqual(sum(kept), 1)


class Question(Case):
    def test_behind_the_template(self):
        messages = [{"role": "user", "content": "Ada lives in Oslo.\n\nHugo lives in Rome."}, {"role": "user", "content": "Where does Ada live?\n"}]
        for marked, text in [(None, messages[1]), (0, messages[0])]:
            chat = [{**m, "question": True} if i == marked else m for i, m in enumerate(messages)]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file, tempfile.NamedTemporaryFile() as trace:
                json.dump(chat, file)
                file.flush()
                out = json.loads(self.good("run", "-m", str(MODEL), "--messages", file.name, "-n", "1", "--json", "--trace", trace.name))
                tokens = json.loads(open(trace.name).readline())["tokens"]
            ((begin, end),) = out["prune"]["question"]
            self.assertEqual("".join(tokens[begin:end]), text["content"].strip())


class Auto(unittest.TestCase):
    """`--prune auto` with a calibration beside the model: an answer from cached states is a fresh run's answer."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(PROGRAM, calibrated(cls.folder.name), "-np", "1", "--prune", "auto").wait_ready()
        lines = (SOURCE / "models/demo-document.txt").read_text().splitlines()
        while len(cls.server.good("/tokenize", {"content": "\n".join(lines)})["tokens"]) > 4300:
            lines.pop()
        cls.document = "\n".join(lines)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.folder.cleanup()

    def ask(self, *messages, **fields):
        body = {"messages": list(messages), "max_tokens": 24, "temperature": 0, "logprobs": True, **fields}
        reply = self.server.good("/v1/chat/completions", body)
        self.assertTrue(reply["prune"]["active"], reply["prune"])
        self.assertIn("calibration", reply["prune"]["auto"])
        return reply

    def as_fresh(self, *messages):
        """The reply and its text, after a fresh run gave the same log-probabilities."""
        reply, fresh = self.ask(*messages), self.ask(*messages, cache_prompt=False)
        self.assertEqual(fresh["timings"]["cache_n"], 0)
        self.assertEqual(reply["choices"], fresh["choices"])
        self.assertEqual(reply["prune"]["kept_per_layer"], fresh["prune"]["kept_per_layer"])
        return reply, reply["choices"][0]["message"]["content"]

    def user(self, text, **fields):
        return {"role": "user", "content": text, **fields}

    def test_second_question(self):
        self.ask(self.user(self.document + "\n\nWhere was the experiment made?"))
        for question in ["Who made the experiment?", "What does the text say about a prism?"]:
            reply, _ = self.as_fresh(self.user(f"{self.document}\n\n{question}"))
            self.assertGreater(reply["timings"]["cache_n"], 3900)

    def test_chat(self):
        chat = [self.user(self.document + "\n\nWhere was the experiment made?")]
        for question in ["Who made the experiment?", "Say it in one word."]:
            _, text = self.as_fresh(*chat)
            chat += [{"role": "assistant", "content": text}, self.user(question)]
        reply, _ = self.as_fresh(*chat)
        self.assertGreater(reply["timings"]["cache_n"], 3900)

    def test_question_before_the_document(self):
        chat = [self.user("Answer from the text: what does it say about a prism?", question=True), self.user(self.document)]
        self.as_fresh(*chat)
        begin, end = self.ask(*chat)["prune"]["question"][0]
        self.assertLess(end, 100)
        self.assertGreater(end, begin)

    def test_outside_the_calibration(self):
        reply = self.server.good("/v1/chat/completions", {"messages": [self.user("Hello?")], "max_tokens": 1})
        self.assertFalse(reply["prune"]["active"])
        self.assertRegex(reply["prune"]["auto"], "covers .* the prompt has .*: dense")


if __name__ == "__main__":
    MODEL = SOURCE / demo_arguments()[0][1]
    if not MODEL.exists():
        print(f"skipped: no {MODEL}; tools/fetch_models.sh fetches it")
        sys.exit(77)
    unittest.main(verbosity=2)
