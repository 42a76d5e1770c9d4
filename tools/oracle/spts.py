"""SPTS (arXiv 2601.13155): deep layers look ahead which rows attend and which run the FFN.

In layer l >= `begin`, over the n rows in the stream, the candidates, with hidden states x:

    s_i   = (1/H) sum_h A[h, last, i]                    (1) over the keys of all candidates
    A     = the M rows of largest s, the last one among them                          (2)
    x'_i  = x_i + attention over A for i in A, otherwise x'_i = x_i                   (3)
    C_i   = ||f(x'_i)||                                                               (4)
    B     = the M rows of largest C_i s_i, the last one among them                    (5)
    x''_i = x'_i + FFN(norm(x'_i)) for i in B, otherwise x''_i = x'_i
    behind the last layer of a stage the K candidates of smallest s leave             (6)

Only rows of A have keys and values in the layer, and decode attends them. A row outside A may have keys in
a later layer. A stage has its own M and K. At least the next stage's M stay; the layers behind the last
stage go on with its M. Where M covers the candidates, all of them attend and run the FFN. Without a file C
is 1. With one, f is a low-rank FFN with fewer channels:

    f(x)     = (silu(n U_g V_g) * (n U_u V_u)) U_d V_d,   n = norm(x)
    ||f(x)|| = ||(silu(n U_g V_g) * (n U_u V_u)) U_d||    the rows of V_d are orthonormal

The file is safetensors, with U and V transposed. If it has biases b, each product adds its own, and a part
of the last bias outside the space of V_d's rows, of length `down.rest`, adds its square to that of the norm.

The paper leaves open, and docs/methods.md decides: layers count from 0, a stage includes its boundary, the
next M always stay. M and K up to 1 are shares of the prompt, rounded up. Of equal scores the earlier wins.
"""

import math

import numpy as np

from choices import ALWAYS, best, of_weights
from sequence import Method
from side_files import read_side_file, write_side_file


class Spts(Method):
    queries = 1

    def __init__(self, settings):
        self.begin, self.ends = settings.integer("begin"), settings.integers("layers")
        self.keep, self.drop = settings.numbers("keep"), settings.numbers("drop")
        path = settings.text("proxy")
        self.proxies = None if path == "none" else Proxies(path)
        self.s = None  # of the candidates in the current layer

    def stage(self, layer):
        """The stage of a layer; behind the last one, the number of stages."""
        return sum(end < layer for end in self.ends)

    def tokens(self, values, stage, seq):
        """A setting with a value for each stage, or with one for all."""
        value = values[min(stage, len(values) - 1)]
        return math.ceil(value * seq.prompt) if value <= 1 else int(value)

    def budget(self, seq, layer):
        """M where the layer skips rows, otherwise None."""
        count = self.tokens(self.keep, self.stage(layer), seq)
        return count if layer >= self.begin and len(seq.positions) > count else None

    def settle(self, seq, layer, what, scores, count, **how):
        choice = best(seq.positions, np.append(scores[:-1], ALWAYS), count, of_weights)
        return seq.referee.settle(seq.step, layer, what, choice, **how)

    def runs_attention(self, seq, layer):
        self.s = seq.attention_mass(layer, seq.positions, 1) / seq.model.heads  # (1)
        count = self.budget(seq, layer)
        return None if count is None else self.settle(seq, layer, "tokens", self.s, count)  # (2)

    def runs_ffn(self, seq, layer):
        count = self.budget(seq, layer)
        if count is None or layer == seq.model.layers - 1:  # there the last row's FFN alone has a reader
            return None
        change = 1 if self.proxies is None else self.proxies.norms(layer, seq.x)  # (4)
        return self.settle(seq, layer, "rows of the FFN", change * self.s, count)  # (5)

    def enters(self, seq, layer):
        if layer - 1 not in self.ends:
            return None
        stage, count = self.ends.index(layer - 1), len(seq.positions)
        stay = max(count - self.tokens(self.drop, stage, seq), self.tokens(self.keep, stage + 1, seq))
        if stay >= count:
            return None
        return self.settle(seq, layer, "used from here on", self.s, stay, in_part=True)  # (6)


class Proxies:
    """The low-rank FFNs f of a file, in float64."""

    def __init__(self, path):
        self.metadata, self.tensors = read_side_file(path)
        if self.metadata["ffn"] != "gated":
            raise ValueError(f"{path}: the oracle's models have gated FFNs alone")

    def norms(self, layer, x):
        """||f(x)||: [rows], of hidden states [rows, d]."""
        part = lambda name: self.tensors.get(f"spts.{layer}.{name}", 0.0)
        n = self.normal(x.astype(np.float64)) * part("norm.w") + part("norm.b")
        gate = n @ part("gate.in").T @ part("gate.out").T + part("gate.b")
        up = n @ part("up.in").T @ part("up.out").T + part("up.b")
        a = gate / (1 + np.exp(-gate)) * up @ part("down").T + part("down.b")
        return np.sqrt(np.sum(a ** 2, axis=1) + part("down.rest") ** 2)

    def normal(self, x):
        eps = float(self.metadata["eps"])
        if self.metadata["norm"] == "layer":
            x = x - x.mean(axis=1, keepdims=True)
        return x / np.sqrt(np.mean(x ** 2, axis=1, keepdims=True) + eps)


def write_random_proxies(path, model, seed, first_layer=0, layer_norm=False):
    """Proxies that predict nothing: they show that a file is applied right, not that it helps.

    With `layer_norm` they have a LayerNorm and biases, whatever the model has: a file has its own.
    """
    random, d, channels, rank = np.random.default_rng(seed), model.d, model.d // 2, max(1, model.d // 12)
    normal = lambda *shape: random.standard_normal(shape)
    tensors = {}
    for layer in range(first_layer, model.layers):
        parts = {"norm.w": 1 + normal(d) / 10}
        for half in ("gate", "up"):
            parts[f"{half}.in"] = normal(rank, d) / math.sqrt(d)
            parts[f"{half}.out"] = normal(channels, rank) / math.sqrt(rank)
        parts["down"] = normal(rank, channels) / math.sqrt(channels)
        if layer_norm:
            parts |= {"norm.b": normal(d) / 10, "gate.b": normal(channels) / 2, "up.b": normal(channels) / 2,
                      "down.b": normal(rank) / 10, "down.rest": np.abs(normal(1))}
        tensors |= {f"spts.{layer}.{name}": value for name, value in parts.items()}
    metadata = {"layers": str(model.layers), "first_layer": str(first_layer), "channels": str(channels),
                "rank": str(rank), "norm": "layer" if layer_norm else "rms", "eps": "1e-05", "ffn": "gated",
                "biases": "all" if layer_norm else "none", "base_model": f"random, seed {seed}"}
    write_side_file(path, metadata, tensors)
