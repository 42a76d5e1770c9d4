"""Attention in one pass over the keys (FlashAttention-2, arXiv 2307.08691), with a running maximum and sum.

  s_j = scale q . k_j + slope (position_j - p)       for the keys with p - window < position_j <= p
  m' = max(m, max_j s_j),  l' = l 2^(m - m') + sum_j 2^(s_j - m'),  o' = o 2^(m - m') + sum_j 2^(s_j - m') v_j
  out = o / l,  lse = log(l) + m                     scores are kept times log2(e), so that exp becomes exp2

q and out [m, heads * head_dim] fp32; k and v [n, kv_heads * head_dim] bf16; p and position: query_positions [m] and
key_positions [n]; lse [heads, m].

A tile of keys that a query does not see changes nothing of it, not even a rounding (m' = m, and the factor is 1). The
tiles of keys are fixed rows of the cache, or of a list, so a row's result depends on no other query of the call.
"""

import triton
import triton.language as tl

from common import INFINITY, LOG2E, multiply, to_bf16


@triton.jit
def load_queries(q, row, head, sq, head_dim, D: tl.constexpr, EXACT: tl.constexpr):
    """bf16 [rows, D], with zeros beyond head_dim."""
    d = tl.arange(0, D)[None, :]
    at = q + row[:, None].to(tl.int64) * sq + head * head_dim + d
    if EXACT:
        value = tl.load(at)
    else:
        value = tl.load(at, mask=(d < head_dim) & (row[:, None] >= 0), other=0.0)
    return to_bf16(value)


@triton.jit
def load_cache(cache, row, head, stride, head_dim, D: tl.constexpr, EXACT: tl.constexpr):
    """bf16 [rows, D] of a kv head, with zeros beyond head_dim."""
    d = tl.arange(0, D)[None, :]
    at = cache + row[:, None].to(tl.int64) * stride + head * head_dim + d
    if EXACT:
        value = tl.load(at)
    else:
        value = tl.load(at, mask=(d < head_dim) & (row[:, None] >= 0), other=0.0)
    return value


@triton.jit
def scores_of(dots, query_position, key_position, slope, factor, ALIBI: tl.constexpr):
    """Scores times log2(e). Without ALiBi the caller applies the factor where it subtracts the maximum."""
    if ALIBI:
        distance = (key_position[None, :] - query_position[:, None]).to(tl.float32)
        dots = dots * factor + slope * distance
    return dots


@triton.jit
def seen(query_position, key_position, window):
    """Whether each query sees each key. A key that does not exist has a position beyond all queries."""
    p = query_position[:, None]
    j = key_position[None, :]
    return (j <= p) & (j > p - tl.where(window == 0, 0x7FFFFFFF, window))


@triton.jit
def accumulate(dots, values, m, l, acc, factor, ALIBI: tl.constexpr):
    """One tile of keys: dots [queries, keys], -inf for unseen pairs; values bf16 [keys, D]."""
    best = tl.max(dots, axis=1)
    new = tl.maximum(m, best if ALIBI else best * factor)
    base = tl.where(new == -INFINITY, 0.0, new)  # no key yet: -inf - -inf would be NaN
    if ALIBI:
        weights = tl.exp2(dots - base[:, None])
    else:
        weights = tl.exp2(tl.fma(dots, tl.zeros_like(dots) + factor, tl.zeros_like(dots) - base[:, None]))
    decay = tl.exp2(m - base)
    l = l * decay + tl.sum(weights, axis=1)
    acc = multiply(to_bf16(weights), values, acc * decay[:, None])
    return new, l, acc


@triton.jit
def key_tiles(first, last, queries, k, v, query_position, key_positions, n, kv_head, sk, sv, head_dim, window, slope,
              factor, m, l, acc, MASKED: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
              ALIBI: tl.constexpr):
    """The tiles [first, last) of keys in order. MASKED: some query may not see some key."""
    for tile in range(first, last):
        row = tile * BN + tl.arange(0, BN)
        at = tl.minimum(row, n - 1) if MASKED else row
        keys = load_cache(k, at, kv_head, sk, head_dim, D, EXACT)
        dots = multiply(queries, tl.trans(keys), tl.zeros((queries.shape[0], BN), tl.float32))
        if MASKED or ALIBI:
            key_position = tl.load(key_positions + at)
            dots = scores_of(dots, query_position, key_position, slope, factor, ALIBI)
        if MASKED:
            visible = seen(query_position, key_position, window) & (row[None, :] < n)
            dots = tl.where(visible, dots, -INFINITY)
        values = load_cache(v, at, kv_head, sv, head_dim, D, EXACT)
        m, l, acc = accumulate(dots, values, m, l, acc, factor, ALIBI)
    return m, l, acc


@triton.jit
def store_heads(out, acc, l, first, valid, head, so, head_dim, D: tl.constexpr, EXACT: tl.constexpr):
    """out = acc / l, rows from `first` on; 0 for a query without keys."""
    d = tl.arange(0, D)[None, :]
    row = tl.arange(0, acc.shape[0])[:, None]
    # Offsets of 32 bits within the tile: pointers of 64 to every value spill.
    at = (out + first.to(tl.int64) * so + head * head_dim) + (row * so + d)
    result = acc / tl.where(l == 0, 1.0, l)[:, None]
    tl.store(at, result, mask=valid[:, None] if EXACT else valid[:, None] & (d < head_dim))


@triton.jit
def attention(q, k, v, query_positions, key_positions, tiles, slopes, out, lse, m, n, group, head_dim, sq, sk, sv, so,
              window, scale, flags, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr,
              ALIBI: tl.constexpr):
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    head = tl.program_id(1)
    if EXACT:
        head_dim = D
    row = tile * BM + tl.arange(0, BM)
    at = tl.minimum(row, m - 1)
    queries = load_queries(q, at, head, sq, head_dim, D, EXACT)
    position = tl.load(query_positions + at)
    slope = tl.load(slopes + head) * LOG2E if ALIBI else 0.0
    factor = scale * LOG2E
    begin = tl.load(tiles + 4 * tile)
    full_begin = tl.load(tiles + 4 * tile + 1)
    full_end = tl.load(tiles + 4 * tile + 2)
    end = tl.load(tiles + 4 * tile + 3)
    best = tl.full((BM,), -INFINITY, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    # Tiles that every query sees whole need no masks. At a window's start or in the fallback all tiles take the masked loop:
    # a third loop would cost more registers than there are.
    full_end = tl.where(begin == full_begin, tl.maximum(full_end, begin), begin) if EXACT else begin
    if EXACT:
        best, total, acc = key_tiles(begin, full_end, queries, k, v, position, key_positions, n, head // group, sk, sv,
                                     head_dim, window, slope, factor, best, total, acc, False, BN, D, EXACT, ALIBI)
    best, total, acc = key_tiles(full_end, end, queries, k, v, position, key_positions, n, head // group, sk, sv,
                                 head_dim, window, slope, factor, best, total, acc, True, BN, D, EXACT, ALIBI)
    store_heads(out, acc, total, tile * BM, row < m, head, so, head_dim, D, EXACT)
    if (flags & 1) != 0:
        tl.store(lse + head.to(tl.int64) * m + row, (best + tl.log2(total)) / LOG2E, mask=row < m)
