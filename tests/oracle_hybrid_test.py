"""The oracle's layers with a state (tools/oracle/hybrid.py): against transformers' logits, and with tokens that left.

    oracle_hybrid_test.py SOURCE_DIR [unittest arguments]

Skips (77) where NumPy is absent.
"""

import json
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "tools/oracle"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; `apt-get install python3-numpy`, for {sys.executable}")
    sys.exit(77)

import hybrid

ROWS = SOURCE / "tests/data/rows"
GOLDEN_TOLERANCE = 1e-5  # transformers' angles of RoPE are those of frequencies in fp32


def golden(row):
    return json.loads((ROWS / row / "logits.json").read_text())


class Dense(unittest.TestCase):
    def check(self, row):
        model = hybrid.Hybrid(ROWS / row / "model.gguf")
        told = golden(row)
        self.assertGreater(max(map(len, told["sequences"])), 128)
        for ids, want in zip(told["sequences"], told["logits"]):
            error = np.abs(model.logits(ids) - want)
            print(f"{row}: {len(ids)} tokens, logits differ by at most {error.max():.1e}, "
                  f"{np.sqrt(np.mean(error**2)):.1e} in the mean", file=sys.stderr)
            self.assertLess(error.max(), GOLDEN_TOLERANCE)

    def test_flat(self):
        self.check("qwen3_5")

    def test_three_value_heads_of_a_key_head_and_a_layer_that_predicts(self):
        self.check("qwen3_5_nested")

    def test_mixture(self):
        self.check("qwen3_5_moe")


class Absent(unittest.TestCase):
    """A token that left is as one that never came, from the layer on that it does not enter."""

    def setUp(self):
        self.model = hybrid.Hybrid(ROWS / "qwen3_5/model.gguf")
        self.ids = np.array(golden("qwen3_5")["sequences"][3])
        random = np.random.default_rng(5)
        self.kept = random.random(len(self.ids)) < 0.4
        self.kept[-1] = True

    def keep_from(self, layer):
        """All tokens below `layer`, then the kept ones."""
        keep = np.ones((self.model.layers, len(self.ids)), bool)
        keep[layer:] = self.kept
        return keep

    def masked(self, layer):
        return self.model.logits(self.ids, self.keep_from(layer))[self.kept]

    def removed(self, layer):
        """The same with the rows of the others taken out of every array."""
        positions = np.arange(len(self.ids))
        x = self.model.embed(self.ids)
        for i in range(self.model.layers):
            if i == layer:
                x, positions = x[self.kept], positions[self.kept]
            x = self.model.layer(x, i, positions, np.ones(len(x), bool))
        return self.model.norm(x, "output_norm") @ self.model.output.T

    def test_masking_is_removing(self):
        for layer in (0, 2, 3, 4):
            self.assertLess(np.abs(self.masked(layer) - self.removed(layer)).max(), 1e-12, layer)

    def test_positions_stay(self):
        closed_up = self.model.logits(self.ids[self.kept])
        self.assertGreater(np.abs(self.masked(0) - closed_up).max(), 1e-3)

    def test_no_part_of_an_absent_token_is_left(self):
        """The comparison can fail: a decay, a write or a tap that stays changes the logits."""
        want = self.masked(3)
        all_rows = np.ones(len(self.ids), bool)
        model, keep = self.model, self.keep_from(3)
        rule, convolve = model.delta_rule, model.convolve
        beside = lambda u, layer, keep: np.where(  # a row that left has values of its own, too
            keep[:, None], convolve(u, layer, keep), convolve(u, layer, all_rows))
        wrong = {"tap": {"convolve": lambda u, layer, keep: convolve(u, layer, all_rows)},
                 "decay": {"delta_rule": lambda q, k, v, g, beta, keep: rule(
                     q, k, v, g, beta * keep[:, None], all_rows)},
                 "write": {"convolve": beside, "delta_rule": lambda q, k, v, g, beta, keep: rule(
                     q, k, v, g * keep[:, None], beta, all_rows)}}
        for part, methods in wrong.items():
            for name, method in methods.items():
                setattr(model, name, method)
            got = model.logits(self.ids, keep)[self.kept]
            for name in methods:
                delattr(model, name)
            self.assertGreater(np.abs(got - want).max(), 1e-2, part)
        self.assertEqual(np.abs(self.masked(3) - want).max(), 0)

    def test_what_left_changes_nothing(self):
        """The hidden states of tokens that left do not reach the others."""
        x = self.model.embed(self.ids)
        other = np.where(self.kept[:, None], x, 7.0)
        positions = np.arange(len(x))
        for layer in range(self.model.layers):
            a = self.model.layer(x, layer, positions, self.kept)[self.kept]
            b = self.model.layer(other, layer, positions, self.kept)[self.kept]
            self.assertEqual(np.abs(a - b).max(), 0, layer)


if __name__ == "__main__":
    unittest.main()
