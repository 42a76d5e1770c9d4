"""The Python blocks of docs/python.md and README's first run, in order, on the small model; tables name what there is."""

import contextlib
import inspect
import io
import os
import re
import shutil
import tempfile
import unittest
from unittest import mock

import coppice_llm
from coppice_llm import LLM
from support import DOCUMENT, MINI, ROOT
from test_program import TUNE

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)


class Blocks(unittest.TestCase):
    def test_page(self):
        self.assertGreaterEqual(len(BLOCKS), 8)
        self.run_in_a_folder(BLOCKS)

    def test_readme(self):
        first = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8")).group(1)
        self.assertIn("from coppice_llm import LLM", first)
        self.run_in_a_folder([first])

    def run_in_a_folder(self, blocks):
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copyfile(MINI, os.path.join(folder, "model.gguf"))
            with open(os.path.join(folder, "report.txt"), "w", encoding="utf-8") as file:
                file.write(DOCUMENT[:4000])
            try:
                os.chdir(folder)
                self.run_blocks(blocks)
            finally:
                os.chdir(before)

    def run_blocks(self, blocks):
        """Answers of a model that never ends one are cut, and tune searches little: the tests of tune have the rest."""
        plain = LLM.tune
        names = {"__name__": "page"}
        with mock.patch.object(LLM, "tune", lambda llm, **_: plain(llm, **TUNE)), \
                contextlib.redirect_stdout(io.StringIO()):
            try:
                for number, block in enumerate(blocks):
                    with self.subTest(block=number):
                        exec(compile(block, f"block {number}", "exec"), names)
            finally:
                if "llm" in names:
                    names["llm"].close()


class Tables(unittest.TestCase):
    def test_every_function_is_there(self):
        own = PAGE[:PAGE.index("## Coming from")]  # what follows also names the functions of others
        public = [name for name, value in inspect.getmembers(LLM) if not name.startswith("_") and callable(value)]
        for name in public:
            self.assertIn(f"llm.{name}(" if name != "from_pretrained" else "LLM.from_pretrained(", own, name)
        for name in re.findall(r"\bllm\.(\w+)\(", own):
            self.assertTrue(hasattr(LLM, name), name)
        for name in coppice_llm.__all__:
            self.assertIn(name, PAGE)

    def test_answer(self):
        for name, value in inspect.getmembers(coppice_llm.Answer):
            if not name.startswith("_") and isinstance(value, property):
                self.assertIn(f"`{name}`", PAGE, name)


if __name__ == "__main__":
    unittest.main()
