"""LazyLLM (arXiv 2407.14057): tokens leave before some layers, and may return in every decode step.

Equation 1, with A[h, q, i] the softmax weight that query q gives to key i in head h of layer l:

    s_i^l = (1/H) sum_h A[h, last, i]

Before a stage's layer l, the tokens that layer l - 1 attended are ranked by s^{l-1}. The share `keep` of
the prompt tokens among them stays: ceil(keep * count), at least 1. A token that leaves in prefill is parked
with its hidden state (the paper's Aux Cache). In decode `last` is the current token. Each step begins with
all tokens and chooses again at every stage. A chosen token without keys returns from the Aux Cache
(algorithm 1) and is computed from that layer on.

The paper leaves open, and docs/methods.md decides: the share is of the tokens that take part; the last
prompt token stays in prefill, inside the count; generated tokens stay, outside the count.
"""

import math

import numpy as np

from choices import ALWAYS, best, of_weights
from sequence import Method


class LazyLlm(Method):
    queries = 1

    def __init__(self, settings):
        keep = settings.numbers("keep")
        self.keep = dict(zip(settings.integers("layers"), keep))
        self.sink = settings.integer("sink")
        self.parks = settings.text("revive") == "aux"
        self.append = settings.text("revive_mask") == "append"

    def choose(self, seq, layer, attended, always):
        """The prompt tokens that stay, of those that layer - 1 attended."""
        tokens = attended[attended < seq.prompt]
        scores = seq.attention_mass(layer - 1, attended, 1)[:len(tokens)] / seq.model.heads  # (1)
        scores[(tokens < self.sink) | np.isin(tokens, always)] = ALWAYS
        count = max(1, math.ceil(self.keep[layer] * len(tokens)))
        return seq.referee.settle(seq.step, layer, "tokens", best(tokens, scores, count, of_weights))

    def enters(self, seq, layer):
        if layer in self.keep:
            return self.choose(seq, layer, seq.positions, [seq.prompt - 1])
        return None

    def attends_before(self, seq, layer):
        if layer not in self.keep or not self.parks:
            return None
        kept = self.choose(seq, layer, seq.attended[-1][layer - 1], [])
        return np.concatenate([kept, np.arange(seq.prompt, seq.length)])
