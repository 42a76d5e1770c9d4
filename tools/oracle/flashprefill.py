"""FlashPrefill (arXiv 2603.06199): in prefill a block of queries reads the key blocks near the best one's score.

Per query head, with kbar_j the mean of the keys of block j, for query block b:

    S_bj = sum over the queries q of b that see all of block j of exp(q . kbar_j / sqrt(c))
    read: S_bj >= alpha max_j' S_bj', the first `sink` blocks, and the `window` blocks up to the own one

The last `last` query blocks, and those with one of the prompt's last 128 rows, read every block. A layer whose
pattern has more than 0.95 of the causal pairs is dense, and so is the last layer, which computes one row.
Decode is dense.

The trace tells only a layer's share of the pairs. A sum within NEAR of its limit may fall on either side in other
arithmetic, so `nearly[layer]` is the share of the pairs that such blocks are.
"""

import numpy as np

from sequence import Method

DENSE_ROWS, NEARLY_DENSE = 128, 0.95
NEAR = 3e-3


class FlashPrefill(Method):
    def __init__(self, settings):
        self.alpha, self.block = float(settings.number("alpha")), settings.integer("block")
        self.sink, self.window = settings.integer("sink"), settings.integer("window")
        self.last = settings.integer("last")

    def reads(self, seq, layer, q, k):
        count, own = len(q), np.arange(len(q)) // self.block
        blocks = own[-1] + 1
        dense_from = (count - DENSE_ROWS) // self.block
        if layer == seq.model.layers - 1 or dense_from <= 0 or self.alpha <= 0:
            return None
        whole = count // self.block  # no query sees all of a partial last block
        means = k[:whole * self.block].reshape(whole, self.block, *k.shape[1:]).mean(axis=1, dtype=np.float64)
        everything = own >= min(blocks - self.last, dense_from)  # query rows
        mask = np.empty((seq.model.heads, count, count), bool)
        for head in range(seq.model.heads):
            of_group = means[:, head // (seq.model.heads // seq.model.kv_heads)]
            scores = q[:, head].astype(np.float64) @ of_group.T * seq.model.head_dim ** -0.5
            read, near = (np.stack(masks) for masks in zip(*(self.read(scores, b, blocks) for b in range(blocks))))
            seq.nearly[layer] += near[own[~everything]].sum() * self.block / (seq.model.heads * np.tri(count).sum())
            mask[head] = (read[own][:, own] | everything[:, None]) & np.tri(count, dtype=bool)
        return mask if mask.mean() / np.tri(count).mean() <= NEARLY_DENSE else None

    def read(self, scores, b, blocks):
        """[blocks] twice: which key blocks query block b reads, and at which of them rounding decides."""
        rows = np.arange(b * self.block, min((b + 1) * self.block, len(scores)))
        sees = np.arange(scores.shape[1])[None, :] < (rows[:, None] + 1) // self.block
        of_block = np.where(sees, scores[rows], -np.inf)
        best = of_block.max(initial=-np.inf)
        sums = np.zeros(blocks)
        if np.isfinite(best):
            sums[:scores.shape[1]] = np.exp(of_block - best).sum(axis=0)
        j = np.arange(blocks)
        always, limit = (j < self.sink) | (j > b - self.window), self.alpha * sums.max()
        return (sums >= limit) | always, (np.abs(sums - limit) <= NEAR * limit) & ~always & (limit > 0)
