"""SDTP (arXiv 2504.04514): before some layers a small network scores every token by its hidden state x.

    pi_i   = W2 gelu(W1 LayerNorm(x_i) + b1) + b2
    score  = pi_i,0 - pi_i,1                       the log-odds of keeping the token
    stay   = round(r^s N) tokens at stage s = 1, 2, ...: the first 4, the last ceil(N / 10), the best others

Prefill only: what left never returns. The network's file is safetensors; docs/methods.md has its format. It
also decides what the paper leaves open: counts are of the original prompt, halves round up, gelu is the
tanh form.
"""

import math
from fractions import Fraction

import numpy as np

from choices import ALWAYS, best, of_products
from sequence import Method
from side_files import read_side_file, write_side_file

LAYER_NORM_EPS = 1e-5
PARTS = ("ln.w", "ln.b", "fc1.w", "fc1.b", "fc2.w", "fc2.b")


class Sdtp(Method):
    def __init__(self, settings):
        metadata, tensors = read_side_file(settings.text("file"))
        in_file = [int(layer) for layer in metadata["layers"].split(",")]
        self.layers = settings.integers("layers")
        self.networks = {layer: {part: tensors[f"sdtp.{in_file.index(layer)}.{part}"] for part in PARTS}
                         for layer in self.layers}
        self.r, self.local = settings.number("r"), settings.number("local")
        self.first = settings.integer("first")

    def enters(self, seq, layer):
        if layer not in self.layers or self.r >= 1:
            return None
        count = math.floor(self.r ** (self.layers.index(layer) + 1) * seq.prompt + Fraction(1, 2))
        scores = score(self.networks[layer], seq.x)
        recent = max(1, math.ceil(self.local * seq.prompt))
        scores[(seq.positions < self.first) | (seq.positions >= seq.prompt - recent)] = ALWAYS
        return seq.referee.settle(seq.step, layer, "tokens", best(seq.positions, scores, count, of_products))


def score(network, x):
    """[rows] of hidden states [rows, d]. In float64: the network is small."""
    x = x.astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt(np.mean(centred ** 2, axis=1, keepdims=True) + LAYER_NORM_EPS)
    z = (normal * network["ln.w"] + network["ln.b"]) @ network["fc1.w"].T + network["fc1.b"]
    gelu = z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z ** 3)))
    pi = gelu @ network["fc2.w"].T + network["fc2.b"]
    return pi[:, 0] - pi[:, 1]


def write_random_predictors(path, hidden, layers, seed):
    """Predictors that learned nothing: they show that a file is applied right, not that it helps."""
    random, width = np.random.default_rng(seed), hidden // 4
    normal = lambda *shape: random.standard_normal(shape).astype("<f4")
    tensors = {}
    for s in range(len(layers)):
        values = (1 + normal(hidden) / 10, normal(hidden) / 10,
                  normal(width, hidden) / np.float32(math.sqrt(hidden)), normal(width) / 10,
                  normal(2, width) / np.float32(math.sqrt(width)), normal(2) / 10)
        tensors |= {f"sdtp.{s}.{part}": value for part, value in zip(PARTS, values)}
    metadata = {"layers": ",".join(map(str, layers)), "stages": str(len(layers)), "r": "0.9", "first": "4",
                "local": "0.1", "base_model": f"random, seed {seed}"}
    write_side_file(path, metadata, tensors)
