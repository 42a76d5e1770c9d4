"""Attention of few queries over many keys. The keys that a query sees are cut into pieces of PIECE, a program each, so one
query occupies the whole device; merge_decode adds the pieces up, as FlashAttention-2 (arXiv 2307.08691) does with blocks of
keys.

  piece p:  m_p = max_j s_j,  l_p = sum_j 2^(s_j - m_p),  o_p = sum_j 2^(s_j - m_p) v_j
  out = sum_p 2^(m_p - m) o_p / sum_p 2^(m_p - m) l_p,  m = max_p m_p

q and out [m, heads * head_dim] fp32; k and v [n, kv_heads * head_dim] bf16; m_p and l_p in stats [m, heads, pieces, 2],
o_p in partial [m, heads, pieces, head_dim].

A piece is fixed by the keys that the query sees, in their order, so nothing else of the call has a part in the result.
"""

import triton
import triton.language as tl

from attention import accumulate, load_cache, load_queries, scores_of
from common import INFINITY, LOG2E, multiply, to_bf16


@triton.jit
def decode_attention(q, k, v, query_positions, key_positions, slopes, ranges, list, partial, stats, pieces, group, unit,
                     head_dim, sq, sk, sv, scale, BH: tl.constexpr, BN: tl.constexpr, PIECE: tl.constexpr,
                     D: tl.constexpr, EXACT: tl.constexpr, ALIBI: tl.constexpr):
    query = tl.program_id(0)
    units = tl.num_programs(1)
    piece = tl.program_id(2)
    if EXACT:
        head_dim = D
    entry = 3 * (query * units + tl.program_id(1))
    first = tl.load(ranges + entry)
    count = tl.load(ranges + entry + 1)
    offset = tl.load(ranges + entry + 2)
    end = tl.minimum((piece + 1) * PIECE, count)
    if piece * PIECE < count:
        number = tl.arange(0, BH)
        head = tl.program_id(1) * unit + tl.minimum(number, unit - 1)
        kv_head = tl.program_id(1) * unit // group
        d = tl.arange(0, D)[None, :]
        at = q + query.to(tl.int64) * sq + head[:, None] * head_dim + d
        queries = to_bf16(tl.load(at, mask=(d < head_dim) & (number[:, None] < unit), other=0.0))
        position = tl.load(query_positions + query) + tl.zeros((BH,), tl.int32)
        slope = tl.load(slopes + head)[:, None] * LOG2E if ALIBI else 0.0
        factor = scale * LOG2E
        best = tl.full((BH,), -INFINITY, tl.float32)
        total = tl.zeros((BH,), tl.float32)
        acc = tl.zeros((BH, D), tl.float32)
        for start in range(piece * PIECE, end, BN):
            index = start + tl.arange(0, BN)
            valid = index < end
            listed = tl.load(list + offset + index, mask=index < tl.where(offset >= 0, end, 0), other=0)
            row = tl.where(offset >= 0, listed, first + tl.minimum(index, count - 1))
            keys = load_cache(k, row, kv_head, sk, head_dim, D, EXACT)
            dots = multiply(queries, tl.trans(keys), tl.zeros((BH, BN), tl.float32))
            if ALIBI:
                dots = scores_of(dots, position, tl.load(key_positions + row), slope, factor, ALIBI)
            dots = tl.where(valid[None, :], dots, -INFINITY)
            values = load_cache(v, row, kv_head, sv, head_dim, D, EXACT)
            best, total, acc = accumulate(dots, values, best, total, acc, factor, ALIBI)
        place = (query.to(tl.int64) * units * unit + head) * pieces + piece
        tl.store(stats + 2 * place, best, mask=number < unit)
        tl.store(stats + 2 * place + 1, total, mask=number < unit)
        tl.store(partial + place[:, None] * head_dim + d, acc, mask=(number[:, None] < unit) & (d < head_dim))


@triton.jit
def merge_decode(partial, stats, ranges, out, pieces, unit, head_dim, so, D: tl.constexpr, PIECE: tl.constexpr,
                 PIECES: tl.constexpr):
    query = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    count = tl.load(ranges + 3 * (query * (heads // unit) + head // unit) + 1)
    used = tl.cdiv(count, PIECE)
    place = (query.to(tl.int64) * heads + head) * pieces
    best = tl.full((PIECES,), -INFINITY, tl.float32)
    for first in range(0, used, PIECES):
        piece = first + tl.arange(0, PIECES)
        best = tl.maximum(best, tl.load(stats + 2 * (place + piece), mask=piece < used, other=-INFINITY))
    top = tl.max(best)
    total = tl.zeros((PIECES,), tl.float32)
    acc = tl.zeros((PIECES, D), tl.float32)
    d = tl.arange(0, D)
    for first in range(0, used, PIECES):
        piece = first + tl.arange(0, PIECES)
        inside = piece < used
        share = tl.exp2(tl.load(stats + 2 * (place + piece), mask=inside, other=-INFINITY) - top)
        total += share * tl.load(stats + 2 * (place + piece) + 1, mask=inside, other=0.0)
        at = partial + (place + piece)[:, None] * head_dim + d[None, :]
        acc += share[:, None] * tl.load(at, mask=inside[:, None] & (d[None, :] < head_dim), other=0.0)
    sum_ = tl.sum(total)
    result = tl.sum(acc, axis=0) / tl.where(sum_ == 0, 1.0, sum_)
    tl.store(out + query.to(tl.int64) * so + head * head_dim + d, result, mask=d < head_dim)
