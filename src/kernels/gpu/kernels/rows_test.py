"""Row operations and conversions, interpreted, against fp64; the cases of src/kernels/conformance_rows_test.cpp."""

import unittest

from interpreted import Case, LONG, aligned, from_bf16, normal, run, to_bf16
import numpy as np

SHAPES = [(1, 1), (1, 7), (5, 100), (2, 4096)] + ([(3, 64), (2, 33), (33, 1000), (70, 24)] if LONG else [])
TOLERANCE = 1e-5


def wide(x: np.ndarray, extra: int = 3) -> np.ndarray:
    """The same values as columns of a wider matrix whose other values are NaN."""
    matrix = np.full((x.shape[0], x.shape[1] + extra), np.nan, x.dtype)
    matrix[:, :x.shape[1]] = x
    return matrix


class Norms(Case):
    def rms_norm(self, x, weight, y):
        run("rms_norm", x, weight, y, weight.size, x.shape[1], y.shape[1], 1e-5, m=x.shape[0])

    def layer_norm(self, x, weight, bias, y):
        run("layer_norm", x, weight, bias, y, weight.size, x.shape[1], y.shape[1], 1e-5, m=x.shape[0])

    def test_rms_norm(self):
        for m, d in SHAPES:
            x, w = normal(m, d, 1, 3), normal(1, d, 2)
            expected = x / np.sqrt(np.mean(x.astype(np.float64)**2, axis=1, keepdims=True) + np.float32(1e-5)) * w
            y = np.full((m, d), np.nan, np.float32)
            self.rms_norm(x, w, y)
            self.close(y, expected, TOLERANCE)
            strided = wide(x)
            self.rms_norm(strided, w, strided)
            self.same(strided[:, :d], y, "in place, of a wider matrix")

    def test_layer_norm(self):
        for m, d in SHAPES:
            for mean in (0, 50):
                x, w, b = normal(m, d, 1) + np.float32(mean), normal(1, d, 2), normal(1, d, 3)
                centred = x - np.mean(x.astype(np.float64), axis=1, keepdims=True)
                expected = centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + np.float32(1e-5)) * w + b
                y = np.full((m, d), np.nan, np.float32)
                self.layer_norm(x, w, b, y)
                self.close(y, expected, TOLERANCE * (3 if mean else 1))
                self.layer_norm(x, w, b, x)
                self.same(x, y, "in place")

    def test_zeros_stay_zero(self):
        y = normal(2, 40, 3)
        self.rms_norm(np.zeros((2, 40), np.float32), normal(1, 40, 2), y)
        self.assertTrue(np.all(y == 0))

    def test_a_row_is_the_same_alone(self):
        x, w = normal(40, 200, 1), normal(1, 200, 2)
        all_, one = np.zeros_like(x), np.zeros((1, 200), np.float32)
        self.rms_norm(x, w, all_)
        self.rms_norm(x[31:32], w, one)
        self.same(one, all_[31:32])
        self.layer_norm(x, w, w, all_)
        self.layer_norm(x[31:32], w, w, one)
        self.same(one, all_[31:32])


class Rope(Case):
    def test_rope(self):
        positions = np.array([0, 1, 5, 6, 63, 99], np.int32)
        for head_dim, heads, rotary in [(4, 3, 4), (8, 1, 8), (64, 5, 64), (80, 2, 32), (128, 3, 128), (96, 1, 50)]:
            pairs = rotary // 2
            angle = normal(100, pairs, 7, 2)
            cos, sin = np.cos(angle), np.sin(angle)
            for interleaved in (0, 1):
                x = normal(6, heads * head_dim, 8)
                expected = x.astype(np.float64).reshape(6, heads, head_dim)
                first = np.arange(pairs) * 2 if interleaved else np.arange(pairs)
                second = first + (1 if interleaved else pairs)
                c, s = cos[positions][:, None, :].astype(np.float64), sin[positions][:, None, :].astype(np.float64)
                a, b = expected[..., first].copy(), expected[..., second].copy()
                expected[..., first], expected[..., second] = a * c - b * s, b * c + a * s
                before = x.copy()
                run("rope", x, positions, cos, sin, head_dim, pairs, x.shape[1], pairs, interleaved, m=6, heads=heads)
                self.close(x, expected.reshape(6, -1), TOLERANCE)
                rest = np.arange(heads * head_dim) % head_dim >= rotary
                self.same(x[:, rest], before[:, rest], "not rotated")


class Elementwise(Case):
    def test_activations(self):
        for m, d in SHAPES:
            gate, up = normal(m, d, 1, 4), normal(m, d, 2)
            g = gate.astype(np.float64)
            run("silu_mul", gate, up, d, d, d, m=m)
            self.close(gate, g / (1 + np.exp(-g)) * up, TOLERANCE)
            x = normal(m, d, 1, 2)
            v = x.astype(np.float64)
            run("gelu", x, d, d, m=m)
            self.close(x, 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))), TOLERANCE)

    def test_extremes(self):
        values = np.array([[-1e30, -1000, -100, -88.7, -20, 20, 88.7, 100, 1000, 1e30]], np.float32)
        gate, x, one = values.copy(), values.copy(), np.ones_like(values)
        with np.errstate(over="ignore"):
            run("silu_mul", gate, one, 10, 10, 10, m=1)
            run("gelu", x, 10, 10, m=1)
        expected = np.maximum(values, 0)
        self.assertTrue(np.all(np.abs(gate - expected) <= 1e-6 * expected + 1e-6))
        self.assertTrue(np.all(np.abs(x - expected) <= 1e-6 * expected + 1e-6))

    def test_add_and_scatter_are_exact(self):
        for m, d in SHAPES:
            x, y = normal(m, d, 1), normal(m, d, 2)
            expected = y + x
            run("add", x, y, d, d, d, m=m)
            self.same(y, expected)
        x, y = normal(4, 37, 1), normal(9, 37, 2)
        rows = np.array([1, 2, 5, 8], np.int32)
        expected = y.copy()
        expected[rows] += x
        run("scatter_add", x, rows, y, 37, 37, 37, m=4)
        self.same(y, expected, "only its rows")

    def test_gather(self):
        rows = np.array([3, 3, 0, 49, 20], np.int32)
        for name, dtype in [("gather_8", np.uint8), ("gather_16", np.uint16), ("gather_32", np.float32)]:
            x = np.random.default_rng(1).integers(0, 200, (50, 1037)).astype(dtype)
            y = np.zeros((5, 1037), dtype)
            run(name, x, rows, y, 1037, 1037, 1037, m=5)
            self.same(y, x[rows], name)


class Conversions(Case):
    SPECIAL = [0, -0.0, 1, -1, np.inf, -np.inf, 1.00390625, 1.01171875, 1.00048828125, 65504, 65519.99, 65520, 1e-7, 5.9e-8,
               3.4e38, 1.17549435e-38]

    def test_rounds_to_nearest_even(self):
        x = normal(20, 133, 1, 100)
        x[3, :len(self.SPECIAL)] = self.SPECIAL
        for name, dtype, expected in [("convert_f32_f32", np.float32, x), ("convert_f32_bf16", np.uint16, to_bf16(x)),
                                      ("convert_f32_f16", np.float16, None)]:
            y = np.full((20, 150), 7, dtype)
            with np.errstate(over="ignore"):
                run(name, x, y, 133, 140, 133, 150, m=20)
                expected = x.astype(np.float16) if expected is None else expected
            self.same(y[:, :133], expected, name)
            self.assertTrue(np.all(y[:, 133:140] == 0) and np.all(y[:, 140:] == 7), name)

    def test_f16_to_bf16(self):
        x = normal(3, 40, 1).astype(np.float16)
        y = np.zeros((3, 40), np.uint16)
        run("convert_f16_bf16", x, y, 40, 40, 40, 40, m=3)
        self.same(y, to_bf16(x.astype(np.float32)))

    def test_q8_0_both_ways(self):
        x = normal(20, 160, 1, 100)
        x[3, :96] = np.repeat(np.array([0, -3, 1e-30], np.float32), 32)
        packed = aligned((20, 5 * 34), np.int8)
        run("convert_f32_q8_0", x, packed, 160, 160, packed.shape[1], m=20)
        blocks = packed.reshape(20, 5, 34)
        scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float64)
        actual = (scale * blocks[..., 2:]).reshape(20, 160)
        largest = np.repeat(np.abs(x).reshape(20, 5, 32).max(axis=2), 32, axis=1)
        self.assertTrue(np.all(np.abs(actual - x) <= largest * (0.501 / 127 + 2.0**-11) + 127 * 2.0**-25))
        self.assertTrue(np.all(actual[x == 0] == 0))
        y = np.zeros((20, 160), np.uint16)
        run("convert_q8_0_bf16", packed, y, 160, packed.shape[1], 160, m=20)
        self.same(y, to_bf16(actual.astype(np.float32)))
        self.close(from_bf16(y), actual, 4e-3)


if __name__ == "__main__":
    unittest.main()
