"""Sets the heads that retrieve by hand, before training. Plain training of a model of this size learns to copy, but no
retrieval by key, in the tokens that a CPU can afford.

The residual stream is divided: a constant, flags, the token's code T, and what attention adds: the codes of the three tokens
before (P1, P2, P3) and the bag B, a mean of the rarer tokens just before. The heads:

    layer 0         from the code of the tokens before, by rope phase on the constant: P1, P2, P3; and B
    layer MARK      query B against key B: the end of the prompt looks at the facts that share its words. It writes nothing; it
                    is what methods that score by attention see before the first stage
    RETRIEVE layers query (T, P1, P2, B) against key (P1, P2, P3, B): the token that followed the same three in the fact of the
                    same words; its code is copied to where the output layer reads

All content is matched in the slow pairs of rope, which hardly turn over the context. Where nothing matches, the first token
takes the attention (a sink) and adds nothing.
"""

import collections
import math

import torch

from llama import Config, Llama

MARK = 3
RETRIEVE = (5, 6)
HAND_SET = (0, MARK, *RETRIEVE)
FAST = 12  # pairs below this turn quickly, the others hold content


class Space:
    """Which entries of the residual stream hold what."""
    CONST, PAD, RARE, BOS = 0, 1, 2, 3
    T = slice(4, 68)
    P1, P2, P3 = slice(68, 104), slice(104, 136), slice(136, 164)
    B = slice(164, 220)
    LM = slice(220, 256)


NORM = 9.0        # of every embedding: layer 0 sees the same scale everywhere
CONST_VALUE = 4.0
CODE_NORM = 5.0
START_FLAG = 3.0


def orthogonal(rows: int, cols: int, g: torch.Generator) -> torch.Tensor:
    """Orthonormal columns or rows, whichever are fewer."""
    q, _ = torch.linalg.qr(torch.randn(max(rows, cols), min(rows, cols), generator=g))
    return q if rows >= cols else q.T


def token_codes(vocab: int, special: list[int], g: torch.Generator) -> torch.Tensor:
    """Unit codes, spread; those of `special` (digits and what stands around them) are orthogonal in the part that P3 keeps."""
    codes = torch.randn(vocab, 64, generator=g)
    codes = codes / codes.norm(dim=1, keepdim=True)
    for _ in range(60):  # push apart what is close
        gram = codes @ codes.T
        gram.fill_diagonal_(0)
        codes = codes - 0.3 * (gram - gram.clamp(-0.25, 0.25)) @ codes
        codes = codes / codes.norm(dim=1, keepdim=True)
    keep = Space.P3.stop - Space.P3.start
    first, second = orthogonal(len(special), keep, g), orthogonal(len(special), 64 - keep, g)
    share = keep / 64
    codes[special] = torch.cat((first * math.sqrt(share), second * math.sqrt(1 - share)), 1)
    return codes


def bigram_factors(ids: list[int], vocab: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Left and right factors of log p(b | a) / p(b), and log p(b)."""
    pairs = collections.Counter(zip(ids, ids[1:]))
    counts = torch.zeros(vocab, vocab)
    index = torch.tensor(list(pairs))
    counts[index[:, 0], index[:, 1]] = torch.tensor(list(pairs.values()), dtype=torch.float)
    unigram = (counts.sum(0) + 0.5) / (counts.sum() + 0.5 * vocab)
    row = counts.sum(1, keepdim=True)
    conditional = (counts + 20 * unigram) / (row + 20)
    pmi = (conditional / unigram).log()
    weight = (row + 5).sqrt() / (row + 5).sqrt().mean()
    u, s, v = torch.svd_lowrank(pmi * weight * unigram.sqrt(), q=rank, niter=6)
    return (u * s.sqrt()) / weight, v * s.sqrt() / unigram.sqrt()[:, None], unigram.log()


def fast_query(amplitude: float, shift: float, first: int, last: int, c: Config) -> torch.Tensor:
    """The query that meets the key (1, 0) of each pair with amplitude * sum cos(rate (distance - shift))."""
    q = torch.zeros(c.head_dim)
    half = c.head_dim // 2
    for pair in range(first, last):
        angle = c.theta ** (-pair / half) * shift
        q[pair], q[pair + half] = amplitude * math.cos(angle), -amplitude * math.sin(angle)
    return q


def slow_rows(c: Config) -> list[int]:
    half = c.head_dim // 2
    return list(range(FAST, half - 1)) + list(range(FAST + half, 2 * half - 1))  # the last pair is the sink's


class Builder:
    def __init__(self, model: Llama, seed: int):
        self.m, self.c = model, model.c
        self.g = torch.Generator().manual_seed(seed)

    def attention(self, layer: int):
        return self.m.model.layers[layer].self_attn

    def rows(self, head: int) -> slice:
        return slice(head * self.c.head_dim, (head + 1) * self.c.head_dim)

    def quiet(self, layer: int) -> None:
        a = self.attention(layer)
        for p in (a.q_proj, a.k_proj, a.v_proj, a.o_proj):
            p.weight.zero_()

    def local(self) -> None:
        """Layer 0. Normalized, the constant is CONST_VALUE * sqrt(hidden) / NORM."""
        a = self.attention(0)
        self.quiet(0)
        unit = math.sqrt(self.c.hidden) / NORM
        const, half = CONST_VALUE * unit, self.c.head_dim // 2
        for group in range(2):
            k = a.k_proj.weight[self.rows(group)]
            k[:FAST, Space.CONST] = 1 / const
            k[half - 1, Space.RARE] = 1 / unit
            a.v_proj.weight[self.rows(group), Space.T] = torch.eye(64) / (unit * CODE_NORM)
        scale = math.sqrt(self.c.head_dim)
        for head, shift in ((0, 1), (1, 2), (2, 3)):
            a.q_proj.weight[self.rows(head), Space.CONST] = fast_query(18 * scale, shift, 0, 9, self.c) / const
        bag = fast_query(3 * scale, 6, 2, 10, self.c)
        bag[half - 1] = 1.5 * scale
        a.q_proj.weight[self.rows(3), Space.CONST] = bag / const
        self.spread = orthogonal(Space.B.stop - Space.B.start, 64, self.g)
        for head, space, size in ((0, Space.P1, 6.5), (1, Space.P2, 7.0), (2, Space.P3, 7.5)):
            a.o_proj.weight[space, self.rows(head)] = size * torch.eye(64)[: space.stop - space.start]
        a.o_proj.weight[Space.B, self.rows(3)] = 12.0 * self.spread

    def sink(self, layer: int, head: int, group: int, logit: float, unit: float) -> None:
        a, last = self.attention(layer), self.c.head_dim // 2 - 1
        a.k_proj.weight[self.rows(group)][last, Space.BOS] = 1.0
        gain = logit * math.sqrt(self.c.head_dim) / (CONST_VALUE * START_FLAG * unit**2)
        a.q_proj.weight[self.rows(head)][last, Space.CONST] = gain

    def match(self, layer: int, parts, sink: float, unit: float) -> None:
        """All heads of a layer: the parts (query space, key space, strength) in the slow pairs; `strength` is the logit of two
        equal parts of norm 5."""
        a, slow = self.attention(layer), slow_rows(self.c)
        per_group = self.c.heads // self.c.kv_heads
        for group in range(self.c.kv_heads):
            for query, key, strength in parts:
                width = key.stop - key.start
                turn = orthogonal(len(slow), width, self.g)
                gain = strength * math.sqrt(self.c.head_dim) / (25 * unit**2)
                k = torch.zeros(self.c.head_dim, width)
                k[slow] = turn
                a.k_proj.weight[self.rows(group), key] += k * math.sqrt(gain)
                for head in range(group * per_group, (group + 1) * per_group):
                    size = min(width, query.stop - query.start)  # all parts hold the first entries of a code
                    a.q_proj.weight[self.rows(head), query.start:query.start + size] += k[:, :size] * math.sqrt(gain)
            for head in range(group * per_group, (group + 1) * per_group):
                self.sink(layer, head, group, sink, unit)


@torch.no_grad()
def set_by_hand(model: Llama, ids: list[int], special: list[int], digits: list[int], seed: int = 1) -> None:
    """`ids` is the text: it gives the bigram table, and how rare each token is."""
    c = model.c
    b = Builder(model, seed)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            scale = 0.02 if "down_proj" not in name and "o_proj" not in name else 0.004
            p.copy_(torch.randn(p.shape, generator=b.g) * scale)
    left, right, log_unigram = bigram_factors(ids, c.vocab, Space.LM.stop - Space.LM.start)
    codes = token_codes(c.vocab, special, b.g)
    e = model.model.embed_tokens.weight
    e.zero_()
    e[:, Space.CONST] = CONST_VALUE
    e[:, Space.T] = CODE_NORM * codes
    rare = (-log_unigram - 6.0).clamp(-3.0, 1.0)
    rare[digits] = -3.0
    e[:, Space.RARE] = rare
    e[1, Space.BOS] = START_FLAG
    lm_scale = 3.0 / left.norm(dim=1).quantile(0.9)
    e[:, Space.LM] = left * lm_scale
    e[:, Space.LM] *= (4.0 / e[:, Space.LM].norm(dim=1, keepdim=True).clamp(min=4.0))
    e[:, Space.PAD] = (NORM**2 - e.square().sum(1)).clamp(min=0).sqrt()
    b.local()
    unit = math.sqrt(c.hidden) / 13.0
    b.quiet(MARK)
    b.match(MARK, [(Space.B, Space.B, 14.0)], 8.0, unit)
    turn = orthogonal(64, 64, b.g)
    for layer in RETRIEVE:
        b.quiet(layer)
        parts = [(Space.T, Space.P1, 9.0), (Space.P1, Space.P2, 6.0), (Space.P2, Space.P3, 6.0), (Space.B, Space.B, 16.0)]
        b.match(layer, parts, 18.0, unit)
        a = b.attention(layer)
        for group in range(c.kv_heads):
            a.v_proj.weight[b.rows(group), Space.T] = torch.eye(64) / (CODE_NORM * unit)
        for head in range(c.heads):
            a.o_proj.weight[Space.T, b.rows(head)] = turn * 14.0 / (c.heads * len(RETRIEVE))
    head = model.lm_head.weight
    head.zero_()
    head[:, Space.CONST] = log_unigram / (CONST_VALUE * unit)
    head[:, Space.T] = codes @ turn.T * 1.2
    head[:, Space.LM] = right / lm_scale / unit
