"""The program in the library: in other processes, and by `python -m coppice_llm`."""

import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import coppice_llm
from coppice_llm import LLM, CoppiceError, _program
from support import LONG, MINI, ROOT, mini

TUNE = {"lengths": [512], "budget": ["60%", "kl=9"], "tasks": "niah", "samples": 8, "steps": 0, "methods": "static:min=0",
        "least": 0, "time_limit": 1}


def module(*arguments):
    return subprocess.run([sys.executable, "-m", "coppice_llm", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)


class Program(unittest.TestCase):
    def test_module(self):
        done = module("--version")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(coppice_llm.version().encode(), done.stdout)
        done = module("run", "-m", "/nowhere/a.gguf", "-p", "a")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/nowhere/a.gguf", done.stderr)

    def test_without_the_library(self):
        with mock.patch.dict(os.environ, {"COPPICE_LIBRARY": "/nowhere/libcoppice.so"}):
            done = module("--version")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"coppice: /nowhere/libcoppice.so: the library coppice is not there", done.stderr)

    def test_help(self):
        self.assertIn("--prune", coppice_llm.help())
        self.assertIn("--budget", coppice_llm.help("tune"))

    def test_doctor(self):
        try:
            found = coppice_llm.doctor()
        except CoppiceError as error:
            if "doctor" in _program.output_of(["--help"]):
                raise
            self.skipTest(f"this program has no doctor: {error}")
        self.assertTrue(found)
        self.assertTrue(coppice_llm.doctor(MINI))
        with self.assertRaisesRegex(CoppiceError, "/nowhere/a.gguf"):
            coppice_llm.doctor("/nowhere/a.gguf")


class Tune(unittest.TestCase):
    def test_calibration_is_used(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, MINI.name)
            shutil.copyfile(MINI, model)
            with LLM(model, prune="auto", ctx=1024, cache_ram=64, packed_ram=0) as llm:
                self.assertIn("no calibration", llm.plan(500)["auto"])
                spec = llm.tune(**TUNE)
                self.assertTrue(spec.startswith("static:"), spec)
                self.assertTrue(pathlib.Path(f"{model}.coppice.json").is_file())
                self.assertIn("has no setting of at most 1 % loss", llm.plan(500)["auto"])
                loss = {"method": "auto", "loss": 0.6}
                self.assertEqual(llm.plan(500, loss)["spec"].split(":")[0], "static")
                answer = llm.generate(llm.tokenize(LONG)[:500], max_tokens=1, prune=loss)
                self.assertIn("coppice.json", answer.prune["auto"])

    def test_failure(self):
        with mini() as llm:
            with self.assertRaisesRegex(CoppiceError, "--lengths"):
                llm.tune(**{**TUNE, "lengths": "many"})
            self.assertEqual(len(llm.generate("a", max_tokens=1).token_ids), 1)


class Example(unittest.TestCase):
    def test_methods(self):
        """Without matplotlib, on the small model."""
        with mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.pyplot": None}), \
                mock.patch("builtins.print") as printed:
            runpy.run_path(str(ROOT / "examples/methods.py"))["main"](MINI)
        lines = [call.args[0] for call in printed.call_args_list]
        self.assertEqual(len(lines), 6)
        self.assertRegex(lines[0], r"^none +speed-up +1\.00  loss +\d+\.\d+$")
        self.assertEqual([line.split(":")[0] for line in lines[1:5]], ["coppice", "lazyllm", "fastkv", "random"])
        self.assertIn("matplotlib is not installed", lines[5])
        losses = [float(line.split()[-1]) for line in lines[:5]]
        self.assertGreater(losses[4], losses[0], "random tokens lose the fact")


if __name__ == "__main__":
    unittest.main()
