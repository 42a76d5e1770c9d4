"""FTP (openreview fL8Zp8o6RL): in prefill the FFN runs only for tokens that the prompt's end looks at.

With the last Nq queries of a layer, over the middle P <= i < N - Nq:

    S_i = sum_h sum_{q in last Nq} A[h, q, i]
    k   = min n such that the sum of the n largest S_i >= eta * sum_i S_i        (equations 2 and 3)
    R   = {0 .. P - 1} + the k best of the middle + {N - Nq .. N - 1}
    y_i = o_i + FFN(norm(o_i)) for i in R, otherwise y_i = o_i                   o: the stream after attention

The first `dense` layers run whole. Attention, keys and values stay whole. Decode is dense.

The paper leaves open, and docs/methods.md decides: eta is met with >= (the paper's pseudo-code has >), its
mass is the middle's own, and of equal scores the earlier token wins.
"""

import numpy as np

from choices import Choice, of_weights, swap_distance
from sequence import Method

MASS_PRECISION = 10  # a sum of many scores is that much more precise than one score


class Ftp(Method):
    def __init__(self, settings):
        if settings.text("choose") != "mass":
            raise ValueError("ftp: the oracle has choose=mass alone")
        self.eta, self.dense = float(settings.number("eta")), settings.integer("dense")
        self.first, self.queries = settings.integer("first"), settings.integer("last")

    def runs_ffn(self, seq, layer):
        last = seq.model.layers - 1  # its FFN runs for the prompt's last token alone, in any method
        if layer < self.dense or layer == last or self.eta >= 1 or seq.prompt <= self.first + self.queries:
            return None
        mass = seq.attention_mass(layer, seq.positions, self.queries)
        middle = seq.positions[self.first:-self.queries]
        kept = seq.referee.settle(seq.step, layer, "ffn", self.choose(middle, mass[middle]))
        return np.concatenate([seq.positions[:self.first], kept, seq.positions[-self.queries:]])

    def choose(self, middle, scores):
        order = np.lexsort((middle, -scores))
        sums = np.cumsum(scores[order])
        count = int(np.argmax(sums >= self.eta * sums[-1])) + 1
        kept = np.sort(middle[order[:count]])

        def distance(other):
            """Another set must be the best of its size, and another size due to a sum that just meets eta."""
            size = len(other)
            if size == 0 or not np.isin(other, middle).all():
                return np.inf
            swapped = swap_distance(middle, scores, np.sort(middle[order[:size]]), other, of_weights)
            if size == count:
                return swapped
            decides = sums[size - 1] if size < count else sums[size - 2]  # the sum that the two round apart
            return max(swapped, MASS_PRECISION * abs(decides / sums[-1] / self.eta - 1))

        return Choice(middle, scores, kept, distance)
