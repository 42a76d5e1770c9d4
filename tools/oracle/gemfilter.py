"""GemFilter (arXiv 2409.17422): the query of the prompt's last token at a filter layer r chooses the prompt.

A first pass runs layers 0 to r over all N tokens. With the queries and keys of layer r, after RoPE:

    s_i = sum_h q[h, N - 1] . k[g(h), i]
    p_i = (1 / kernel) sum of s_j over |j - i| <= kernel / 2, zeros beyond the ends
    enter: the last token and the best others by p, k in all

A second pass runs the chosen tokens through the whole model. They take positions 0, 1, ..., k - 1, as in the
authors' code, or keep their own. Generated tokens follow.
"""

import numpy as np

from choices import ALWAYS, best, of_products
from sequence import Method


class GemFilter(Method):
    def __init__(self, settings):
        self.layer, self.kernel = settings.integer("layer"), settings.integer("kernel")
        self.keep = settings.number("keep")
        self.compact = settings.text("positions") == "compact"

    def input(self, seq, ids):
        tokens = np.arange(len(ids))
        scores = self.scores(seq.model, ids, tokens)
        scores[-1] = ALWAYS
        count = max(1, int(self.keep * len(ids) if self.keep <= 1 else self.keep))
        return seq.referee.settle(seq.step, 0, "input", best(tokens, scores, count, of_products))

    def scores(self, model, ids, tokens):
        x = model.embed(ids)
        sees = lambda begin, end: tokens[None, :] <= tokens[begin:end, None]
        for layer in range(self.layer):
            x = model.attend(x, layer, *model.queries_keys_values(x, layer, tokens), sees)
            x = model.ffn(x, layer)
        q, k, _ = model.queries_keys_values(x, self.layer, tokens)
        of_head = np.repeat(k, model.heads // model.kv_heads, axis=1).astype(np.float64)  # [N, H, c]
        return np.convolve(np.einsum("hc,nhc->n", q[-1], of_head), np.ones(self.kernel) / self.kernel, "same")
