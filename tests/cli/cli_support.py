"""What the tests of the commands share: the program and the tree that the command line names, and how a command must end.

    A_TEST.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import pathlib
import re
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # what the rooms share

from server_support import patience  # noqa: E402

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
SHARED = SOURCE.parent / "shared"
MODEL = str(SOURCE / "models/coppice-mini-f16.gguf")
PROMPT_2K = str(SOURCE / "tests/data/prompt-2k.txt")
ANSWER_2K = (SOURCE / "tests/data/prompt-2k.answer").read_text().strip()


def run(*args, timeout=300, **kwargs):
    if "input" not in kwargs:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([PROGRAM, *args], capture_output=True, timeout=timeout * patience(PROGRAM), **kwargs)


def needs_shared(test):
    return unittest.skipUnless(SHARED.is_dir(), f"{SHARED} is absent")(test)


class Case(unittest.TestCase):
    def good(self, *args, **kwargs):
        done = run(*args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        said = done.stderr.decode()
        if args[0] == "run":
            said = re.sub(r"(?m)^read [\d,]+ tokens? in .*\n", "", said)
            if "--prune" in args:  # who asks for pruning is told what came of it
                said = re.sub(r"(?m)^(prune|stands aside|auto)\b.*\n", "", said)
        if args[0] == "tune":  # and who waits for minutes, how many
            said = re.sub(r"tune: \d+ tokens: .*, [\d.]+ s for a dense answer: .*\n", "", said)
        self.assertEqual(said, "", "nothing else may be written to stderr")
        return done.stdout.decode()

    def bad(self, *args, code=1, says=(), prints=False):
        """`prints`: whether results that were there before the fault are on stdout."""
        done = run(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout != b"", prints, done.stdout)
        message = done.stderr.decode()
        if code == 1:
            self.assertEqual(message.count("\n"), 1, f"not one line: {message!r}")
        for part in says:
            self.assertIn(part, message)


def positions_of(text):
    ends = [run.split("-") for run in text.split(",") if run]
    return [p for end in ends for p in range(int(end[0]), int(end[-1]) + 1)]
