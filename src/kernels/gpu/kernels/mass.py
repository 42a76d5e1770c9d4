"""The softmax weights themselves, in two passes over the keys, because a weight needs the sum over all keys.

  lse_i    = log2(sum_j 2^(s_ij))           attention_lse per piece of PIECE keys, merge_lse over the pieces in order
  mass_j   = sum (or max) over heads, i of weight_i 2^(s_ij - lse_i)
                                             attention_mass per head, merge_mass over the heads in order
  weights  = softmax(s_i), written out       attention_scores, then softmax_rows

Scores s are those of attention.py, times log2(e). lse [heads, m]; mass [n]; weight_i: weights [m], of the queries; the
softmax weights are y [m * heads, n]. merge_lse merges sums of pieces as FlashAttention-2 (arXiv 2307.08691) does.
"""

import triton
import triton.language as tl

from attention import load_cache, load_queries, scores_of, seen
from common import INFINITY, LOG2E, multiply


@triton.jit
def score_tile(queries, keys, position, key_position, row, n, window, slope, factor, ALIBI: tl.constexpr):
    """Scores times log2(e), -inf where a query does not see a key."""
    dots = multiply(queries, tl.trans(keys), tl.zeros((queries.shape[0], keys.shape[0]), tl.float32))
    dots = scores_of(dots, position, key_position, slope, factor, ALIBI)
    if not ALIBI:
        dots = dots * factor
    return tl.where(seen(position, key_position, window) & (row[None, :] < n), dots, -INFINITY)


@triton.jit
def attention_lse(q, k, query_positions, key_positions, slopes, partial, m, n, group, head_dim, sq, sk, window, scale,
                  BM: tl.constexpr, BN: tl.constexpr, PIECE: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
                  ALIBI: tl.constexpr):
    head = tl.program_id(1)
    piece = tl.program_id(2)
    if EXACT:
        head_dim = D
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = tl.minimum(row, m - 1)
    queries = load_queries(q, at, head, sq, head_dim, D, EXACT)
    position = tl.load(query_positions + at)
    slope = tl.load(slopes + head) * LOG2E if ALIBI else 0.0
    factor = scale * LOG2E
    best = tl.full((BM,), -INFINITY, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    first = piece * PIECE
    end = tl.minimum(first + PIECE, n)
    # Positions ascend: no query of the tile sees a piece that begins beyond the last query.
    if tl.load(key_positions + first) > tl.max(position):
        end = first
    for start in range(first, end, BN):
        key_row = start + tl.arange(0, BN)
        key_at = tl.minimum(key_row, n - 1)
        keys = load_cache(k, key_at, head // group, sk, head_dim, D, EXACT)
        scores = score_tile(queries, keys, position, tl.load(key_positions + key_at), key_row, n, window, slope, factor,
                            ALIBI)
        new = tl.maximum(best, tl.max(scores, axis=1))
        base = tl.where(new == -INFINITY, 0.0, new)
        total = total * tl.exp2(best - base) + tl.sum(tl.exp2(scores - base[:, None]), axis=1)
        best = new
    entry = ((piece * tl.num_programs(1) + head).to(tl.int64) * m + row) * 2
    tl.store(partial + entry, best, mask=row < m)
    tl.store(partial + entry + 1, total, mask=row < m)


@triton.jit
def merge_lse(partial, lse, pieces, count, TILE: tl.constexpr):
    """lse [count], times log2(e)."""
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    best = tl.full((TILE,), -INFINITY, tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    for piece in range(0, pieces):
        entry = (piece * count.to(tl.int64) + at) * 2
        other = tl.load(partial + entry, mask=inside, other=-INFINITY)
        new = tl.maximum(best, other)
        base = tl.where(new == -INFINITY, 0.0, new)
        total = total * tl.exp2(best - base) + tl.load(partial + entry + 1, mask=inside, other=0.0) * tl.exp2(other - base)
        best = new
    tl.store(lse + at, best + tl.log2(total), mask=inside)


@triton.jit
def attention_mass(q, k, query_positions, key_positions, slopes, lse, weights, partial, m, n, group, head_dim, sq, sk,
                   window, scale, flags, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
                   ALIBI: tl.constexpr):
    head = tl.program_id(1)
    if EXACT:
        head_dim = D
    key_row = tl.program_id(0) * BN + tl.arange(0, BN)
    key_at = tl.minimum(key_row, n - 1)
    keys = load_cache(k, key_at, head // group, sk, head_dim, D, EXACT)
    key_position = tl.load(key_positions + key_at)
    slope = tl.load(slopes + head) * LOG2E if ALIBI else 0.0
    factor = scale * LOG2E
    maximum = (flags & 1) != 0
    column = partial + head.to(tl.int64) * n + key_row
    mass = tl.load(column, mask=key_row < tl.where((flags & 4) != 0, n, 0), other=0.0)
    nearest = tl.min(key_position)
    for first in range(0, m, BM):
        row = first + tl.arange(0, BM)
        at = tl.minimum(row, m - 1)
        position = tl.load(query_positions + at)
        if nearest <= tl.max(position):
            queries = load_queries(q, at, head, sq, head_dim, D, EXACT)
            scores = score_tile(queries, keys, position, key_position, key_row, n, window, slope, factor, ALIBI)
            share = tl.exp2(scores - tl.load(lse + head.to(tl.int64) * m + at)[:, None])
            weight = tl.load(weights + at, mask=row < tl.where((flags & 2) != 0, m, 0), other=1.0)
            share = tl.where(row[:, None] < m, share * weight[:, None], 0.0)
            if maximum:
                mass = tl.maximum(mass, tl.max(share, axis=0))
            else:
                mass += tl.sum(share, axis=0)
    tl.store(column, mass, mask=key_row < n)


@triton.jit
def merge_mass(partial, mass, heads, n, flags, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for head in range(0, heads):
        value = tl.load(partial + head * n.to(tl.int64) + at, mask=at < n, other=0.0)
        total = tl.where((flags & 1) != 0, tl.maximum(total, value), total + value)
    tl.store(mass + at, total, mask=at < n)


@triton.jit
def attention_scores(q, k, query_positions, key_positions, slopes, y, m, n, group, head_dim, sq, sk, sy, window, scale,
                     BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr, ALIBI: tl.constexpr):
    """y[i * heads + head] = scores of query i, times log2(e)."""
    head = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = tl.minimum(row, m - 1)
    key_row = tl.program_id(2) * BN + tl.arange(0, BN)
    key_at = tl.minimum(key_row, n - 1)
    queries = load_queries(q, at, head, sq, head_dim, D, EXACT)
    keys = load_cache(k, key_at, head // group, sk, head_dim, D, EXACT)
    scores = score_tile(queries, keys, tl.load(query_positions + at), tl.load(key_positions + key_at), key_row, n, window,
                        tl.load(slopes + head) * LOG2E, scale * LOG2E, ALIBI)
    target = (row.to(tl.int64) * tl.num_programs(1) + head)[:, None] * sy + key_row[None, :]
    tl.store(y + target, scores, mask=(row[:, None] < m) & (key_row[None, :] < n))


@triton.jit
def softmax_rows(y, n, sy, TILE: tl.constexpr):
    y += tl.program_id(0).to(tl.int64) * sy
    best = tl.full((TILE,), -INFINITY, tl.float32)
    for first in range(0, n, TILE):
        column = first + tl.arange(0, TILE)
        best = tl.maximum(best, tl.load(y + column, mask=column < n, other=-INFINITY))
    top = tl.max(best)
    top = tl.where(top == -INFINITY, 0.0, top)
    sums = tl.zeros((TILE,), tl.float32)
    for first in range(0, n, TILE):
        column = first + tl.arange(0, TILE)
        sums += tl.exp2(tl.load(y + column, mask=column < n, other=-INFINITY) - top)
    total = tl.sum(sums)
    inverse = 1.0 / tl.where(total == 0, 1.0, total)
    for first in range(0, n, TILE):
        column = first + tl.arange(0, TILE)
        value = tl.exp2(tl.load(y + column, mask=column < n, other=-INFINITY) - top) * inverse
        tl.store(y + column, value, mask=column < n)
