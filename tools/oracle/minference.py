"""MInference (arXiv 2407.02490): in prefill each query head reads one of three patterns of keys.

Blocks have 64 rows; b is a query's block, j a key's. A are the softmax weights of the prompt's last 64 queries.

    vertical_slash  the `first` keys j with the largest sum_i A[i, j], always the prompt's first 30, and every block
                    (b, j) that one of the `second` best diagonals d crosses, floor(d / 64) and ceil(d / 64) blocks
                    back: the largest sums of A[i, i - d], always the nearest 100
    block_sparse    for b, the `first` blocks with the largest weight of b's mean query for their mean keys, each
                    mean at the middle of its block; always the first block and b
    a_shape         the blocks of the first `first` keys, and ceil(second / 64) blocks up to b

The last 128 rows' blocks are dense, and so is a head whose pattern covers the prompt; a layer whose pattern has
more than 0.95 of the causal pairs; and the last layer, which computes one row. Decode is dense.
"""

import json
import pathlib

import numpy as np

from sequence import Method

BLOCK, LAST, SINK, NEAR, DENSE_ROWS, NEARLY_DENSE = 64, 64, 30, 100, 128, 0.95


class MInference(Method):
    def __init__(self, settings):
        kind = settings.text("pattern")
        sizes = {"vertical_slash": ("vertical", "slash"), "block_sparse": ("blocks",),
                 "a_shape": ("first", "nearest")}[kind]
        self.all = [kind, *(settings.integer(key) for key in sizes)]
        file = settings.text("heads")
        self.heads = None if file == "none" else json.loads(pathlib.Path(file).read_text())["heads"]

    def reads(self, seq, layer, q, k):
        count = len(q)
        dense_from = (count - DENSE_ROWS) // BLOCK
        if layer == seq.model.layers - 1 or dense_from <= 0:
            return None
        own = np.arange(count) // BLOCK
        causal = np.tri(count, dtype=bool)
        mask = np.empty((seq.model.heads, count, count), bool)
        for head in range(seq.model.heads):
            kind, *sizes = self.heads[layer][head] if self.heads else self.all
            reach = sizes[0] * BLOCK if kind == "block_sparse" else sum(sizes)
            keys = k[:, head // (seq.model.heads // seq.model.kv_heads)].astype(np.float64)
            queries = q[:, head].astype(np.float64) * seq.model.head_dim ** -0.5
            read = causal if count <= reach else getattr(self, kind)(queries, keys, own, *sizes)
            mask[head] = (read | (own >= dense_from)[:, None] | (own[:, None] == own)) & causal
        return mask if mask.mean() / causal.mean() <= NEARLY_DENSE else None

    def vertical_slash(self, q, k, own, first, second):
        count = len(q)
        a = np.zeros((LAST, count))
        for row, i in enumerate(range(count - LAST, count)):
            a[row, :i + 1] = softmax(k[:i + 1] @ q[i])
        columns = a.sum(axis=0)
        diagonals = np.array([sum(a[row, i - d] for row, i in enumerate(range(count - LAST, count)) if i >= d)
                              for d in range(count)])
        columns[:SINK], diagonals[:NEAR] = np.inf, np.inf
        distance = own[:, None] - own  # in blocks
        read = np.zeros((count, count), bool)
        for blocks in {n for d in np.argsort(-diagonals, kind="stable")[:second] for n in (d // BLOCK, -(-d // BLOCK))}:
            read |= distance == blocks
        read[:, np.argsort(-columns, kind="stable")[:first]] = True
        return read

    def block_sparse(self, q, k, own, first):
        blocks = own[-1] + 1
        starts = np.arange(blocks) * BLOCK
        counts = np.diff(np.append(starts, len(q)))
        mean_q, mean_k = (np.add.reduceat(x, starts) / counts[:, None] for x in (q, k))
        chosen = np.zeros((blocks, blocks), bool)
        for b in range(blocks):
            scores = mean_k[:b + 1] @ mean_q[b]
            scores[0] = scores[b] = np.inf
            chosen[b, np.argsort(-scores, kind="stable")[:first]] = True
        return chosen[own][:, own]

    def a_shape(self, q, k, own, first, nearest):
        blocks_of = lambda keys: -(-keys // BLOCK)
        return (own[None, :] < blocks_of(first)) | (own[None, :] > own[:, None] - blocks_of(nearest))


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def write_random_head_patterns(path, layers, heads, seed):
    """A file of patterns, some of which cover a prompt of 1,000 tokens."""
    random = np.random.default_rng(seed)
    kinds = [lambda: ["vertical_slash", int(random.integers(30, 90)), int(random.integers(100, 150))],
             lambda: ["block_sparse", int(random.integers(2, 18))],
             lambda: ["a_shape", int(random.integers(1, 600)), int(random.integers(1, 600))]]
    patterns = [[kinds[random.integers(3)]() for _ in range(heads)] for _ in range(layers)]
    pathlib.Path(path).write_text(json.dumps({"format": "coppice head patterns", "version": 1, "model": "random",
                                              "tokens": 900, "budget": 300, "heads": patterns}))
