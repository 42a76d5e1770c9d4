"""SnapKV (arXiv 2404.14469) and FastKV (arXiv 2502.01068): what the prompt's last w queries attend to stays.

With the last w queries of a layer, for kv head g and its query heads, over the rows before the window:

    s[g, j] = sum of A[h, q, j] over these queries and heads
    p[g, j] = mean, or maximum, of s[g, i] over |i - j| <= kernel / 2; a mean counts rows beyond the ends as 0

SnapKV: after each layer's attention in prefill, the cache of kv head g keeps the last w rows and the best
others by p[g], `cap` in all. Decode never evicts.

FastKV: that, with the budget `cache`; and only the last w rows and the best others by sum_g p[g] of layer t,
`keep` in all, go on to layer t + 1. Budgets up to 1 are shares of the prompt, rounded down.
"""

import numpy as np

from choices import ALWAYS, best, of_weights
from sequence import Method


def budget(value, tokens):
    return int(value * tokens if value <= 1 else value)


class SnapKv(Method):
    def __init__(self, settings, cap="cap"):
        self.queries, self.kernel = settings.integer("window"), settings.integer("kernel")
        self.maximum, self.cap = settings.text("pool") == "max", settings.number(cap)
        if settings.values.get("heads", "kv") != "kv" or settings.values.get("schedule", "flat") != "flat":
            raise ValueError("snapkv: the oracle has heads=kv and schedule=flat alone")

    def pooled(self, seq, layer):
        """[kv heads, rows before the window], over the stream."""
        seen, model = seq.positions, seq.model
        visible = seen[None, :] <= seen[-self.queries:, None]
        weights = model.attention_weights(seq.last_queries[layer], seq.keys[layer, seen], visible)
        mass = weights.sum(axis=1, dtype=np.float64).reshape(model.kv_heads, -1, len(seen)).sum(axis=1)
        mass, half = mass[:, :-self.queries], self.kernel // 2
        filled = np.pad(mass, ((0, 0), (half, half)), constant_values=-np.inf if self.maximum else 0)
        shifted = np.stack([filled[:, i:i + mass.shape[1]] for i in range(self.kernel)])
        return shifted.max(axis=0) if self.maximum else shifted.sum(axis=0) / self.kernel

    def evicts(self, seq, layer):
        count, rows = budget(self.cap, seq.prompt), len(seq.positions)
        if count <= self.queries:
            raise ValueError("the oracle wants a cache of more than the window")
        if rows <= count:
            return None
        return [self.with_window(seq, scores, count).kept for scores in self.pooled(seq, layer)]

    def with_window(self, seq, scores, count):
        scores = np.concatenate([scores, np.full(self.queries, ALWAYS)])
        return best(seq.positions, scores, count, of_weights)


class FastKv(SnapKv):
    def __init__(self, settings):
        super().__init__(settings, "cache")
        self.layer, self.keep = settings.integer("layer"), settings.number("keep")

    def enters(self, seq, layer):
        count = max(budget(self.keep, seq.prompt), self.queries)
        if layer != self.layer + 1 or count >= len(seq.positions):
            return None
        choice = self.with_window(seq, self.pooled(seq, layer - 1).sum(axis=0), count)
        return seq.referee.settle(seq.step, layer, "stream", choice)
