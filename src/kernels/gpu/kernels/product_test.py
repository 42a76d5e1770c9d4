"""Products and embeddings of every form, interpreted, against fp64."""

import dataclasses
import unittest

from interpreted import Case, LONG, aligned, from_bf16, normal, placed, run, to_bf16
import numpy as np


@dataclasses.dataclass(frozen=True)
class Type:
    """A type of GGUF files in the device's layout: README.md, section Weights."""
    form: str
    low: int        # codes
    high: int
    zero: int = 0
    group: int = 0  # 0: scales of 32 values
    groups: tuple = (0, 0)
    mins: bool = False


TYPES = {
    "BF16": Type("bf16", 0, 0),
    "Q8_0": Type("q8", -128, 127),
    "Q5_0": Type("q8", -16, 15),
    "Q5_1": Type("q8", 0, 31, mins=True),
    "Q4_0": Type("q4", 0, 15, zero=8),
    "Q4_1": Type("q4", 0, 15, mins=True),
    "Q5_K": Type("q8k", 0, 31, group=32, groups=(0, 63), mins=True),
    "Q6_K": Type("q8k", -32, 31, group=16, groups=(-128, 127)),
    "Q2_K": Type("q4k", 0, 3, group=16, groups=(0, 15), mins=True),
    "Q3_K": Type("q4k", 0, 7, zero=4, group=16, groups=(-32, 31)),
    "Q4_K": Type("q4k", 0, 15, group=32, groups=(0, 63), mins=True),
}
SHORT = ["BF16", "Q8_0", "Q4_1", "Q6_K", "Q4_K"]  # every form, with and without minima


def padded(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    y = aligned((rows, columns), x.dtype)
    y[:x.shape[0], :x.shape[1]] = x
    return y


class Weight:
    """A random weight [outputs, inputs] in device layout, and its values [outputs, inputs]."""

    def __init__(self, name: str, outputs: int, inputs: int, seed: int):
        random = np.random.default_rng(seed)
        self.type = t = TYPES[name]
        self.outputs, self.inputs, self.k = outputs, inputs, -(-inputs // 128) * 128
        rows = -(-outputs // 128) * 128
        self.scales = self.mins = self.groups = self.group_mins = None
        if t.form == "bf16":
            codes = to_bf16(normal(outputs, inputs, seed, 0.1))
            self.values = from_bf16(codes).astype(np.float64)
            self.codes = padded(codes, rows, self.k)
            return
        codes = random.integers(t.low, t.high + 1, (outputs, inputs))
        block = 256 if t.group else 32
        blocks = -(-self.k // block)
        scale = random.uniform(-0.02, 0.02, (outputs, inputs // block)).astype(np.float16)
        least = random.uniform(-0.02, 0.02, (outputs, inputs // block)).astype(np.float16)
        self.scales = padded(scale, rows, blocks)
        self.mins = padded(least, rows, blocks) if t.mins else None
        factor, minimum = np.repeat(scale.astype(np.float64), block, 1), np.repeat(least.astype(np.float64), block, 1)
        if t.group:
            groups = random.integers(t.groups[0], t.groups[1] + 1, (outputs, inputs // t.group)).astype(np.int8)
            group_mins = random.integers(0, 64, groups.shape).astype(np.uint8)
            self.groups = padded(groups, rows, self.k // t.group)
            self.group_mins = padded(group_mins, rows, self.k // t.group) if t.mins else None
            factor = factor * np.repeat(groups, t.group, 1)
            minimum = -minimum * np.repeat(group_mins, t.group, 1)
        self.values = factor * (codes - t.zero) + (minimum if t.mins else 0)
        if t.form.startswith("q4"):
            codes = codes[:, 0::2] | codes[:, 1::2] << 4
            self.codes = padded(codes.astype(np.uint8), rows, self.k // 2)
        else:
            self.codes = padded(codes.astype(np.int8), rows, self.k)

    def pointers(self) -> tuple:
        return self.codes, self.scales, self.mins, self.groups, self.group_mins

    def rounded(self) -> np.ndarray:
        return from_bf16(to_bf16(self.values.astype(np.float32))).astype(np.float64)


def product(x: np.ndarray, w: Weight, bias=None, add_to=None, gated=False) -> np.ndarray:
    outputs = w.outputs // 2 if gated else w.outputs
    y = np.full((x.shape[0], outputs), np.nan, np.float32) if add_to is None else add_to.copy()
    flags = w.type.mins | (bias is not None) << 1 | (add_to is not None) << 2 | gated << 3
    run(f"product_{w.type.form}", padded(to_bf16(x), x.shape[0], w.k), *w.pointers(), bias, y, x.shape[0], outputs, w.k, w.k,
        outputs, w.type.zero, w.type.group, flags, width=w.outputs)
    return y


def decode(x: np.ndarray, w: Weight, bias=None) -> np.ndarray:
    y = np.full((x.shape[0], w.outputs), np.nan, np.float32)
    run(f"decode_product_{w.type.form}", x, *w.pointers(), bias, y, x.shape[0], w.outputs, w.inputs, w.k, x.shape[1],
        w.outputs, w.type.zero, w.type.group, w.type.mins | (bias is not None) << 1)
    return y


def shapes(name: str) -> list[tuple[int, int, int]]:
    """Rows, outputs, inputs."""
    block = 256 if TYPES[name].group else 32 if name != "BF16" else 1
    few = [(3, 130, 256), (130, 33, 256)]
    many = [(1, 5, 256), (1, 1, block), (7, 129, 3 * block), (17, 96, 5 * block), (129, 257, 256), (260, 64, 768)]
    return few + (many if LONG else [])


class Products(Case):
    def names(self):
        return TYPES if LONG else SHORT

    def test_matches_fp64(self):
        for name in self.names():
            for m, outputs, inputs in shapes(name):
                w = Weight(name, outputs, inputs, 2)
                x, bias, before = normal(m, inputs, 1), normal(1, outputs, 3), normal(m, outputs, 4)
                exact = from_bf16(to_bf16(x)).astype(np.float64) @ w.rounded().T
                what = f"{name} {m} {outputs} {inputs}"
                plain = product(x, w)
                self.close(plain, exact, 3e-6, what)
                self.close(plain, x.astype(np.float64) @ w.values.T, 2.5e-2, what)
                self.close(product(x, w, bias, before), exact + bias + before, 3e-6, what)
                self.close(decode(x[:20], w, bias), (exact + bias)[:20], 3e-6, what)

    def test_gated(self):
        for name in self.names():
            w = Weight(name, 2 * 70, 256, 5)
            x, bias, before = normal(5, 256, 1), normal(1, 140, 3), normal(5, 70, 4)
            exact = from_bf16(to_bf16(x)).astype(np.float64) @ w.rounded().T
            gate, up = exact[:, 0::2] + bias[:, :70], exact[:, 1::2] + bias[:, 70:]
            self.close(product(x, w, bias, None, True), gate / (1 + np.exp(-gate)) * up, 1e-5, name)
            self.close(product(x, w, bias, before, True), gate / (1 + np.exp(-gate)) * up + before, 1e-5, name)

    def test_a_row_is_the_same_alone(self):
        for name in TYPES if LONG else ("BF16", "Q4_K"):
            w = Weight(name, 140, 256, 6)
            x = normal(131, 256, 7)
            whole, few = product(x, w), decode(x[:40], w)
            for row in (0, 77, 130) if LONG else (130,):
                self.same(product(x[row:row + 1], w), whole[row:row + 1], f"{name} row {row}")
            for row in (0, 15, 39) if LONG else (39,):
                self.same(decode(x[row:row + 1], w), few[row:row + 1], f"{name} decoded row {row}")


class Rows(Case):
    def test_embed_plain(self):
        ids = np.array([11, 0, 5, 5, 0], np.int32)
        table = normal(12, 70, 3)
        for name, stored, values in [("f32", table, table), ("f16", table.astype(np.float16), None),
                                     ("bf16", to_bf16(table), from_bf16(to_bf16(table)))]:
            y = np.zeros((5, 70), np.float32)
            run(f"embed_{name}", stored, ids, y, 70, 70, 70, m=5)
            self.same(y, (stored.astype(np.float32) if values is None else values)[ids], name)

    def test_embed_quantised(self):
        ids = np.array([11, 0, 5, 5, 0, 2, 3, 4, 11, 7], np.int32)
        for name, t in TYPES.items():
            if name == "BF16":
                continue
            w = Weight(name, 12, 512, 3)
            y = np.zeros((10, 512), np.float32)
            run(f"embed_{t.form}", *w.pointers(), ids, y, 10, 512, w.k, 512, t.zero, t.group, int(t.mins))
            self.close(y, w.values[ids], 1e-6, name)


if __name__ == "__main__":
    unittest.main()
