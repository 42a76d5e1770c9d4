"""A real model through its own chat template: what `make demo` shows. Skips (77) where tools/fetch_models.sh could not
fetch the model.

    real_model_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import subprocess
import sys
import tempfile
import unittest

from cli_support import Case, SOURCE


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


class Demo(Case):
    def test_every_method_answers_right(self):
        options, methods, expect = demo_arguments()
        self.assertGreater(len(methods), 1)
        for prune in ["none", *methods]:
            out = json.loads(self.good("run", *options, "--temp", "0", "--json", "--prune", prune, cwd=SOURCE))
            self.assertIn(expect, out["text"], prune)
            if prune != "none":
                self.assertTrue(out["prune"]["active"], prune)
                self.assertLess(out["prune"]["flops"], 0.95 * out["prune"]["flops_dense"], prune)


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


if __name__ == "__main__":
    MODEL = SOURCE / demo_arguments()[0][1]
    if not MODEL.exists():
        print(f"skipped: no {MODEL}; tools/fetch_models.sh fetches it")
        sys.exit(77)
    unittest.main(verbosity=2)
