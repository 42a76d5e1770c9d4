"""Time and memory by the size of what a file holds: each text of a file that the program reads, as 20 repetitive texts.

    cli_growth_test.py PROGRAM SOURCE_DIR [--long] [unittest arguments]

--long tries all texts in larger files; without it, every fifth text and file. What requests may hold is
server_growth_test.py's.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")

from cli_support import MODEL, PROGRAM, SOURCE  # noqa: E402

import growth  # noqa: E402
from gguf_edit import edit  # noqa: E402
from server_support import patience  # noqa: E402

SIZE = 1 << (19 if LONG else 16)  # bytes; twice as many are tried, too
LIMITS = growth.Limits(factor=patience(PROGRAM))
FOLDER = SOURCE.parent / "shared/models/TinyStories-656K"
RUN = ("run", "-m", str(MODEL), "-p", "x", "-n", "1")


def run(*arguments):
    """The seconds of CPU and the bytes that a run of the program took, and its exit status."""
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10, process.returncode


class Growth(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.tried = 0

    def hold(self, what, command, write, values):
        """`write(value)` makes the file that `command` reads. What the command takes with a small one is not counted."""
        write(values["letter"](1))
        seconds, size, _ = min(run(*command) for _ in range(3))

        def measure(value):
            write(value)
            taken, most, status = run(*command)
            self.assertIn(status, (0, 1), f"{what}: an error is one of its own")
            self.tried += 1
            return growth.Cost(max(0, taken - seconds), max(0, most - size))

        for number, (name, make) in enumerate(values.items()):
            if not LONG and (number + len(what)) % 5:
                continue
            with self.subTest(what, text=name):
                self.assertIsNone(growth.fault(measure, make, SIZE, LIMITS))

    def texts(self):
        return {name: lambda size, name=name: growth.text(name, size) for name in growth.TEXTS}

    def json_values(self):
        """Texts as JSON's, and values of other shapes."""
        written = {name: lambda size, name=name: json.dumps(growth.text(name, size), ensure_ascii=False) for name in growth.TEXTS}
        return {**written, **{name: lambda size, make=make: growth.dumps(make(size)) for name, make in growth.SHAPES.items()}}

    def plain_file(self, name, *command):
        path = self.folder / name
        self.hold(name, [*command, path], lambda text: path.write_text(text, encoding="utf-8", errors="replace"), self.texts())

    def test_gguf(self):
        for key in ("general.name", "tokenizer.chat_template", "tokenizer.ggml.pre"):
            path = self.folder / "model.gguf"
            self.hold(key, ["run", "-m", path, "-p", "x", "-n", "1", *(("--chat",) if "chat" in key else ())],
                      lambda text, key=key: edit(MODEL, path, texts={key: text}), self.texts())

    def test_forms(self):
        self.plain_file("answer.gbnf", *RUN, "--grammar-file")
        path = self.folder / "schema.json"
        for keyword in ("pattern", "enum", "properties", "anyOf", "required", "$ref", "const"):
            self.hold(keyword, [*RUN, "--json-schema-file", path],
                      lambda value, keyword=keyword: path.write_text('{"type": "object", "%s": %s}' % (keyword, value)),
                      self.json_values())

    def test_texts(self):
        self.plain_file("template.jinja", *RUN, "--chat", "--chat-template-file")
        self.plain_file("prompt.txt", "tokenize", "-m", MODEL, "-f")
        path = self.folder / "chat.json"
        self.hold("messages", ["tokenize", "-m", MODEL, "--messages", path], lambda value: path.write_text(
            '[{"role": "user", "content": "x", "other": %s}]' % value), self.json_values())

    def test_calibrations(self):
        model = self.folder / "m.gguf"
        shutil.copy(MODEL, model)
        path = self.folder / "m.gguf.coppice.json"
        for shape in ('{"format": %s}', '{"format": 1, "entries": [{"why": %s}]}', '{"format": 1, "entries": %s}'):
            self.hold(shape, ["run", "-m", model, "-p", "x", "-n", "1", "--prune", "auto"],
                      lambda value, shape=shape: path.write_text(shape % value), self.json_values())

    def test_traces(self):
        path = self.folder / "trace.json"
        self.hold("trace", ["trace", path, "-o", self.folder / "page.html"], path.write_text, self.json_values())

    @unittest.skipUnless(FOLDER.is_dir(), f"{FOLDER} is not there")
    def test_hugging_face_folder(self):
        folder = self.folder / "model"
        folder.mkdir()
        for path in FOLDER.iterdir():
            shutil.copyfile(path, folder / path.name)
        for name in sorted(p.name for p in FOLDER.glob("*.json")):
            whole = json.loads((FOLDER / name).read_text(encoding="utf-8"))
            for member in [*whole, "other"] if isinstance(whole, dict) else ():
                rest = {key: value for key, value in whole.items() if key != member}
                self.hold(f"{name} {member}", ["run", "-m", folder, "-p", "x", "-n", "1"],
                          lambda value: (folder / name).write_text('{"%s": %s, %s' % (member, value, json.dumps(rest)[1:]),
                                                                   encoding="utf-8"), self.json_values())
            shutil.copyfile(FOLDER / name, folder / name)

    def tearDown(self):
        self.assertGreater(self.tried, 0)


if __name__ == "__main__":
    unittest.main()
