"""coppice train from outside: killed without warning it goes on and ends with the same bytes; bad input is one line.

    train_test.py PROGRAM SOURCE_DIR [unittest arguments]

Where the build has no trainer, only what `coppice train` says of that is tested.
"""

import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from cli_support import Case, PROGRAM, SHARED, run

STORIES = SHARED / "models/stories260K/stories260K.gguf"
TRAINER = pathlib.Path(PROGRAM).parent / "coppice-train"


class Train(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    @unittest.skipIf(TRAINER.exists(), "this build has a trainer")
    def test_a_build_without_trainer_says_how_to_get_one(self):
        self.bad("train", "sdtp", "-m", "x", says=["this build has no trainer", "libtorch-dev"])

    @unittest.skipUnless(TRAINER.exists(), "this build has no trainer")
    def test_usage(self):
        self.bad("train", code=2, says=["Try: coppice train sdtp --help"])
        self.bad("train", "sdtp", code=2)
        self.bad("train", "sdtp", "-m", "x", "-d", "y", "-o", "z", "--mask", "topk", code=2, says=["--end-to-end"])
        self.bad("train", "sdtp", "-m", "x", "-d", "y", "-o", "z", "-r", "1.5", code=2)
        for decided in [["--epochs", "3"], ["--no-rank"], ["-r", "0.8"], ["--end-to-end"]]:
            self.bad("train", "sdtp", "-m", "x", "-d", "y", "-o", "z", "--paper", *decided, code=2, says=["--paper"])
        self.bad("train", "sdtp", "-m", str(self.folder), "-d", "y", "-o", "z", says=[str(self.folder)])
        helped = run("train", "sdtp", "--help")
        self.assertEqual(helped.returncode, 0)
        self.assertIn(b"--end-to-end", helped.stdout)

    @unittest.skipUnless(TRAINER.exists() and STORIES.exists(), "no trainer, or no model")
    def test_killed_it_goes_on_with_the_same_bytes(self):
        texts = self.folder / "texts.jsonl"
        names = ["Tim", "Lily", "Ben", "Sue", "Max", "Anna", "Tom", "Mia"]
        with texts.open("w") as out:
            for i in range(64):
                a, b = names[i % 8], names[(i * 5 + 3) % 8]
                story = f"Once upon a time {a} and {b} went to the park number {i}. {a} saw a big dog and {b} ran home."
                out.write(json.dumps({"instruction": story, "response": f"{a} was happy and played with {b}."}) + "\n")

        def arguments(name):
            return ["sdtp", "-m", str(STORIES), "-d", str(texts), "-o", str(self.folder / name), "--layers", "1/3", "--json",
                    "--epochs", "60", "--batch", "4", "--length", "128", "--save-every", "3", "-t", "1", "-s", "7"]

        whole = run("train", *arguments("whole"))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertEqual(whole.stderr, b"")
        report = json.loads(whole.stdout)
        self.assertEqual(report["texts"], 64)
        self.assertEqual(report["resumed_at"], 0)

        work = self.folder / "pieces.work"
        kills = 0
        for patience in [(8, 0), (40, 0), (64, 0), (64, 1), (64, 1)]:
            process = subprocess.Popen([PROGRAM, "train", *arguments("pieces")], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                marked, runs = len(list(work.glob("text-*.safetensors"))), len(list(work.glob("run-*.safetensors")))
                if (marked, runs) >= patience:
                    time.sleep(0.02)
                    break
                time.sleep(0.001)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.wait()
        self.assertGreaterEqual(kills, 3)
        last = run("train", *arguments("pieces"))
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual((self.folder / "whole").read_bytes(), (self.folder / "pieces").read_bytes())
        self.assertEqual([p.name for p in work.glob("*.part")], [])


if __name__ == "__main__":
    unittest.main()
