"""The engine against tools/oracle on mixtures of experts, which are made of the bundled model: dense, and with pruning.

    oracle_mixture_test.py PROGRAM SOURCE_DIR [unittest arguments]

Skips (77) where NumPy is absent.
"""

import os
import pathlib
import sys
import tempfile
import unittest

PROGRAM, SOURCE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
sys.path[:0] = [str(SOURCE / "tools/oracle"), str(SOURCE / "tests")]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    import compare
except ImportError as error:
    print(f"skipped: {error}; `apt-get install python3-numpy`, for {sys.executable}")
    sys.exit(77)

from mixture_model import write_mixture


class Mixtures:
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "mixture.gguf"
        write_mixture(SOURCE / "models/coppice-12-q8_0.gguf", path, cls.architecture, seed=3)
        cls.compared = compare.Comparison(path, PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def faults(self, spec, seed, tokens=400, steps=6, **more):
        result = self.compared.compare(spec, self.compared.prompt(tokens, seed), steps + 1, **more)
        print(result.line(), file=sys.stderr, flush=True)
        return result, [str(fault) for fault in result.faults]

    def good(self, *args, **more):
        result, faults = self.faults(*args, **more)
        self.assertEqual(faults, [])
        return result

    def test_dense(self):
        self.good("none", seed=1)

    def test_lazyllm(self):
        result = self.good("lazyllm:min=0", seed=2)
        self.assertLess(result.kept, 1)
        self.assertGreater(result.revived, 0)  # rows that a step adds run their experts, too

    def test_ftp(self):
        self.assertLess(self.good("ftp:min=0", seed=3).ffn, 1)

    def test_sliminfer(self):
        self.assertLess(self.good("sliminfer:keep=0.5,min=0", seed=4).kept, 1)

    def test_spts(self):
        self.assertLess(self.good("spts:begin=3,layers=5/8,keep=150/100,drop=50,min=0", seed=5, steps=3).kept, 1)

    def test_another_router_is_seen(self):
        """The comparison can fail: with one expert less for a row, the answers differ."""
        model = self.compared.model
        model.experts_used -= 1
        try:
            _, faults = self.faults("none", seed=1, steps=1)
        finally:
            model.experts_used += 1
        self.assertTrue(any("log-probabilities" in fault for fault in faults), faults)


class Mixtral(Mixtures, unittest.TestCase):
    architecture = "llama"


class Qwen2Moe(Mixtures, unittest.TestCase):
    architecture = "qwen2moe"


if __name__ == "__main__":
    unittest.main()
