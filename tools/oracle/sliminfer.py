"""SlimInfer (arXiv 2508.06447): blocks of tokens leave after a layer's attention, and may return in decode.

The prompt is split into blocks of B tokens, and each block into units of u tokens. At a deciding layer,
with the mean of the last w queries and the mean key of every unit (equations 1 and 2):

    r(j) = max over units m of block j of (1/H) sum_h mean(q^h) . mean(k^g(h))(j, m)

Block 0, the tail and the best others stay, k_s tokens in all. The others leave before this layer's FFN.
In decode every deciding layer scores all blocks that have keys there, with the last w queries of
prompt and answer. Algorithm 1, with `cand` the best blocks and `active` what the step before attended:

    active = cand where |cand and active| / |cand| < gamma, otherwise unchanged

The layers up to and including the next deciding layer attend the active blocks and all generated tokens.

The paper leaves open, and docs/methods.md decides: stage s decides in layer p_s - 1, so that layers from
p_s on hold k_s tokens. The tail is the blocks that hold the last `last` tokens and the window's.
Products are of rotated queries and keys, without softmax and scale. A block that was dropped in prefill
has no keys, so its hidden states were parked before the FFN that they owe (revive=aux). At most
`revive_cap` blocks of a stage are computed in one step, the best first. With revive=none `cand` is made of
blocks that have keys. The overlap is that of all of `cand`, as in algorithm 1, which knows no cap. Blocks
beyond the cap stay out of the step; the best blocks with keys take their places.
"""

import math

import numpy as np

from choices import ALWAYS, Choice, best, of_products
from sequence import Method


class SlimInfer(Method):
    def __init__(self, settings):
        layers = settings.integers("layers")
        self.stages = {p - 1: s for s, p in enumerate(layers)}  # deciding layer -> stage
        self.keep, self.decode_keep = settings.integers("keep"), settings.integers("decode_keep")
        self.block, self.unit = settings.integer("block"), settings.integer("unit")
        self.last = max(settings.integer("last"), settings.integer("window"))
        self.queries, self.gamma = settings.integer("window"), settings.number("gamma")
        self.parks, self.cap = settings.text("revive") == "aux", settings.integer("revive_cap")
        self.pool = np.max if settings.text("score") == "max" else np.mean
        if settings.text("score") != "units":  # the paper's ablation
            self.unit = self.block
        self.decides_in_decode = self.parks or self.decode_keep != self.keep
        self.active = {}  # stage -> blocks that the last step attended

    # Equations 1 and 2

    def scores(self, seq, layer, blocks):
        """r(j) of `blocks`. Block 0 and the tail stay whatever they score."""
        query = seq.last_queries[layer].mean(axis=0, dtype=np.float64)  # [H, c]
        r = np.array([self.score_of_block(seq, layer, query, j) for j in blocks])
        r[(blocks == 0) | (blocks >= self.tail(seq))] = ALWAYS
        return r

    def score_of_block(self, seq, layer, query, j):
        end, best_unit = min((j + 1) * self.block, seq.prompt), -math.inf
        for begin in range(j * self.block, end, self.unit):
            tokens = np.arange(begin, min(begin + self.unit, end))
            keys = seq.keys[layer, tokens[seq.has[layer, tokens]]].astype(np.float64)
            key = np.repeat(self.pool(keys, axis=0), seq.model.heads // seq.model.kv_heads, axis=0)  # [H, c]
            best_unit = max(best_unit, float(np.sum(query * key, axis=1).mean()))
        return best_unit

    def tail(self, seq):
        """The first of the last blocks that stay."""
        return max(seq.prompt - self.last, 0) // self.block

    def count(self, seq, budget):
        """Blocks that a budget of tokens pays for."""
        blocks = -(-seq.prompt // self.block)
        always = len(set(range(self.tail(seq), blocks)) | {0})
        return blocks if budget >= seq.prompt else max(budget // self.block, always)

    def choose(self, seq, layer, blocks, budget):
        return best(blocks, self.scores(seq, layer, blocks), self.count(seq, budget), of_products)

    def tokens_of(self, seq, blocks):
        return np.flatnonzero(np.isin(np.arange(seq.prompt) // self.block, blocks))

    # Prefill

    def stays(self, seq, layer):
        stage = self.stages.get(layer)
        if stage is None:
            return None
        blocks = np.unique(seq.positions // self.block)
        if self.keep[stage] < len(seq.positions):
            choice = self.choose(seq, layer, blocks, self.keep[stage])
            blocks = seq.referee.settle(seq.step, layer + 1, "blocks", choice)
        self.active[stage] = blocks
        return self.tokens_of(seq, blocks)

    # Decode

    def attends_after(self, seq, layer):
        stage = self.stages.get(layer)
        if stage is None or not self.decides_in_decode:
            return None
        first = np.arange(0, seq.prompt, self.block)  # the tokens of a block are computed together
        here, above = seq.has[layer, first], seq.has[layer + 1, first]
        blocks = np.flatnonzero(here if self.parks else above)
        choice = self.choose(seq, layer, blocks, self.decode_keep[stage])
        choice = self.algorithm_1(choice, self.active[stage], above)
        self.active[stage] = seq.referee.settle(seq.step, layer + 1, "blocks", choice)
        return np.concatenate([self.tokens_of(seq, self.active[stage]), np.arange(seq.prompt, seq.length)])

    def algorithm_1(self, choice, active, has_keys):
        cand = choice.kept
        overlap = len(np.intersect1d(cand, active))
        over_budget = len(active) > len(cand)  # where decode_keep is below keep
        swap = over_budget or overlap < self.gamma * len(cand)
        affordable, cap_margin = self.affordable(choice, has_keys)
        kept = affordable.kept if swap else active

        # Scores that are nearly equal at a cut explain another active set. The cuts are that of the
        # candidates, that of the cap, and that of what the cap leaves.
        margins = [self.margin(choice), self.margin(affordable), cap_margin]
        margin = min(margins) / of_products(choice.scores, 0)
        known = lambda other: bool(np.isin(other, choice.items).all())
        return Choice(choice.items, choice.scores, kept, lambda other: margin if known(other) else math.inf)

    def affordable(self, choice, has_keys):
        """The best blocks, with at most `revive_cap` of those without keys; and the margin of that cap."""
        parked = np.flatnonzero(~has_keys[choice.items] & np.isfinite(choice.scores))
        order = parked[np.lexsort((parked, -choice.scores[parked]))]
        out = order[self.cap:]
        margin = choice.scores[order[self.cap - 1]] - choice.scores[out[0]] if self.cap and len(out) else math.inf
        items, scores = np.delete(choice.items, out), np.delete(choice.scores, out)
        return best(items, scores, len(choice.kept), of_products), margin

    def margin(self, choice):
        """The worst score inside less the best outside."""
        inside = np.isin(choice.items, choice.kept)
        return choice.scores[inside].min() - choice.scores[~inside].max() if not inside.all() else math.inf
