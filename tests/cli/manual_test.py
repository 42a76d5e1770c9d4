"""manual_test.py PROGRAM ROOT: the manual page has each command with each of its options, and renders without a warning."""

import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT = pathlib.Path(), pathlib.Path()
# A line of a help that begins an option, a positional or a command.
ENTRY = re.compile(r"^  (\S.*?)(?:  .*)?$", re.MULTILINE)


def run(*command, **options) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, **options).stdout


def helps(*words: str):
    """The words of each command, and its help."""
    text = run(PROGRAM, *words, "--help")
    yield words, text
    below = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    for name in re.findall(r"^  (\w+)", below.group(1), re.MULTILINE) if below else []:
        yield from helps(*words, name)


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.page = cls.folder / "coppice.1"
        run(sys.executable, ROOT / "tools/make_manual.py", PROGRAM, cls.page)
        cls.helps = list(helps())

    def rendered(self) -> str:
        if not shutil.which("groff"):
            self.skipTest("no groff (apt-get install groff)")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-rLL=2000n", "-P-c", self.page], capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stderr, "")
        return re.sub(r".\x08", "", done.stdout).replace("\u2019", "'")

    def test_every_command_and_option_is_there(self):
        shown, found = self.rendered(), 0
        for words, text in self.helps:
            title = " ".join(["coppice", *words]).upper()
            part = shown if not words else shown.split(f"\n{title}\n")[1].split("\nCOPPICE ")[0]
            for entry in ENTRY.findall(text.split("\nExample")[0]):
                name = re.match(r"(.*?)(?:   .*)?$", entry).group(1).rstrip()
                self.assertIn(name, part, title)
                found += 1
        self.assertGreater(found, 200)

    def test_texts_stand_as_the_program_says_them(self):
        shown = " ".join(self.rendered().split())
        for _, text in self.helps:
            for line in re.findall(r"^ {30}(\S.*)$", text, re.MULTILINE):
                self.assertIn(" ".join(line.split()), shown)
            for example in re.findall(r"^  (coppice .*|curl .*)$", text, re.MULTILINE):
                self.assertIn(" ".join(example.split()), shown)

    def test_man_shows_it(self):
        if not shutil.which("man") or not shutil.which("groff"):
            self.skipTest("no man (apt-get install man-db groff)")
        done = subprocess.run(["man", "--warnings", "-l", self.page], capture_output=True, text=True, check=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
        self.assertEqual(done.stderr, "")
        self.assertIn("coppice - long prompts", done.stdout)

    def test_the_same_bytes_each_time(self):
        packed = self.folder / "packed.1.gz"
        run(sys.executable, ROOT / "tools/make_manual.py", PROGRAM, packed)
        self.assertEqual(packed.read_bytes(), gzip.compress(self.page.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    PROGRAM, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
