"""UniPrefill (arXiv 2605.06221): after some layers' attention blocks of the stream leave, before the FFN.

With the last w queries of a deciding layer, over the blocks j of the n tokens in the stream:

    s_i = sum_h sum_{q in last w} A[h, q, i]
    b_j = sum of s_i over the tokens i of block j
    S   = fewest blocks with sum_{j in S} b_j >= p * sum_j b_j

S, the first `sink` tokens and the blocks that hold the last w tokens stay. A stream of sink + w tokens or
fewer stays whole.

The authors' two versions differ in whether the block that crosses p belongs to S; here it does. Of equal
blocks the earlier one stays. The oracle wants a `sink` of whole blocks: then blocks of the stream are blocks
of the prompt at every layer.
"""

import numpy as np

from choices import Choice, of_weights, swap_distance
from sequence import Method

MASS_PRECISION = 10  # a sum of many scores is that much more precise than one score


class UniPrefill(Method):
    def __init__(self, settings):
        self.layers, self.p = settings.integers("layers"), float(settings.number("p"))
        self.block, self.sink = settings.integer("block"), settings.integer("sink")
        self.queries = settings.integer("last")
        if self.sink % self.block:
            raise ValueError("uniprefill: the oracle wants a sink of whole blocks")

    def stays(self, seq, layer):
        count = len(seq.positions)
        if layer not in self.layers or self.p >= 1 or count <= self.sink + self.queries:
            return None
        mass = seq.attention_mass(layer, seq.positions, self.queries)
        of_token = seq.positions // self.block
        blocks = np.unique(of_token)
        scores = np.array([mass[of_token == block].sum() for block in blocks])
        always = (blocks * self.block < self.sink) | (blocks >= of_token[count - self.queries])
        kept = seq.referee.settle(seq.step, layer + 1, "blocks", self.choose(blocks, scores, always))
        return seq.positions[np.isin(of_token, kept)]

    def choose(self, blocks, scores, always):
        order = np.lexsort((blocks, -scores))
        sums = np.cumsum(scores[order]) / scores.sum()
        count = int(np.argmax(sums >= self.p)) + 1
        kept = np.union1d(blocks[order[:count]], blocks[always])
        free = order[~always[order]]  # the best first

        def distance(other):
            """Another set must hold the best free blocks, as many as a sum that just meets p allows."""
            if not np.isin(other, blocks).all() or not np.isin(blocks[always], other).all():
                return np.inf
            theirs = np.setdiff1d(other, blocks[always])
            best = np.sort(blocks[free[:len(theirs)]])
            swapped = swap_distance(blocks[free], scores[free], best, theirs, of_weights)
            if len(theirs) == int(np.sum(~always[order[:count]])):
                return swapped
            # The sums at which the count of free blocks is theirs.
            counts = np.cumsum(~always[order])
            near = np.flatnonzero(counts == len(theirs))
            return max(swapped, MASS_PRECISION * float(np.abs(sums[near] / self.p - 1).min(initial=np.inf)))

        return Choice(blocks, scores, kept, distance)
