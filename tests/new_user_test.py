"""The commands of README as a new user types them, in a fresh clone, with what must come out. Label long.

    new_user_test.py PROGRAM SOURCE_DIR [unittest arguments]

PROGRAM takes the place of what `make build` makes; with COPPICE_NEW_USER_BUILDS=1 the clone builds its own. The bundled
model is model.gguf. Blocks of docs/clients.md: clients_pages_test.py.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from fenced import blocks_of

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
SECTIONS = ["Quick start", "Use"]
SMOL = "models/fetched/SmolLM2-135M-Instruct.Q4_1.gguf"
BUILDS = os.environ.get("COPPICE_NEW_USER_BUILDS") == "1"


class NotRun(str):
    """Why this test does not run a line."""


MEASURES = NotRun("measures for minutes; the tests of the command run it on small models")
# The beginning of each line of these sections, and a pattern that what it prints must hold.
LINES = [
    ("pip install dist/", NotRun("needs `make wheel`; tests/wheel_test.py installs the file")),
    ("coppice run -m model.gguf -f report.txt --ask", r"\w"),
    ("make build", r"^" if BUILDS else NotRun("COPPICE_NEW_USER_BUILDS is not 1")),
    ("make models", NotRun("downloads; tests/fetch_models_test.py runs what it calls")),
    ("build/coppice run -m models/fetched/", r"\w" if (SOURCE / SMOL).is_file() else NotRun(f"needs {SMOL}, which make models fetches")),
    ("build/coppice doctor", r"(?i)model\.gguf|tokens"),
    ("build/coppice run -m model.gguf -f report.txt --ask", r"\w"),
    ("git log | build/coppice run", r"\w"),
    ("build/coppice chat", r"^"),
    ("build/coppice run -m model.gguf --chat -f letter.txt", r'"prompt_tokens"|"prompt"'),
    ("build/coppice tune", MEASURES),
    ("build/coppice run -m model.gguf --chat -f report.txt --prune auto", r"\w"),
    ("build/coppice serve", r"^"),
    ("curl http://127.0.0.1:8080/v1/chat/completions", r'"object":"chat.completion"'),
    ("build/coppice run -m model.gguf --chat -f report.txt --prune coppice --doc-cache", r"\w"),
    ("build/coppice compare", r"sliminfer"),
    ("build/coppice eval", MEASURES),
    ("build/coppice bench", MEASURES),
    ("build/coppice run -m model.gguf -f report.txt --prune lazyllm --trace", r"\w"),
    ("build/coppice trace", r"^"),
]


def lines_of_readme():
    for block in blocks_of(SOURCE / "README.md"):
        if block.section in SECTIONS and block.language == "indented":
            for line in block.text.splitlines():
                yield re.sub(r"\s+# .*", "", line)


class NewUser(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.clone = self.folder / "coppice"
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{SOURCE}", self.clone], check=True)
        if not BUILDS:
            (self.clone / "build").mkdir()
            (self.clone / "build/coppice").symlink_to(PROGRAM)
        if (SOURCE / SMOL).is_file():
            (self.clone / SMOL).parent.mkdir(parents=True)
            shutil.copy(SOURCE / SMOL, self.clone / SMOL)
        shutil.copy(self.clone / "models/coppice-mini-f16.gguf", self.clone / "model.gguf")
        text = (self.clone / "tests/data/prompt-2k.txt").read_text(encoding="utf-8")
        (self.clone / "report.txt").write_text(text, encoding="utf-8")
        (self.clone / "letter.txt").write_text(text + "\nWho signed it?\n", encoding="utf-8")
        self.env = {"HOME": str(self.folder), "PATH": f"{self.clone}/build:{os.environ['PATH']}", "LANG": "C.UTF-8"}

    def start(self, line):
        """A server in its group, which ends with the test; the line after it finds it ready."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        server = subprocess.Popen(f"{line} --port {self.port} -n 16", shell=True, cwd=self.clone, env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(os.killpg, server.pid, signal.SIGTERM)
        printed = server.stdout.readline()
        return printed + server.stdout.readline()

    def type(self, line, expected):
        if line.startswith("build/coppice serve"):
            self.assertRegex(self.start(line), r"listening on http://127\.0\.0\.1:\d+\nready: ")
            return
        if line.startswith("curl "):
            line = line.replace(":8080/", f":{self.port}/")  # a free one, where 8080 may be taken
        # A new user's model stops; the bundled one needs a limit.
        if "coppice run " in line and " -n " not in line:
            line += " -n 16"
        done = subprocess.run(line, shell=True, cwd=self.clone, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=3600)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertRegex(done.stdout, expected, done.stderr)
        for name in re.findall(r"(?:--trace|-o) (run\.\w+)", line):
            self.assertTrue((self.clone / name).stat().st_size > 0, name)

    def test_readme(self):
        lines = list(lines_of_readme())
        self.assertEqual(len(lines), len(LINES), "README and the table of this test have not the same lines")
        for line, (begin, expected) in zip(lines, LINES):
            self.assertTrue(line.startswith(begin), f"README has {line!r} where this test has {begin!r}")
            if isinstance(expected, NotRun):
                print(f"not run: {line}: {expected}", flush=True)
                continue
            print(f"typed: {line}", flush=True)
            with self.subTest(line):
                self.type(line, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
