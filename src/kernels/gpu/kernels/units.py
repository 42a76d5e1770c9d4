"""Scores of units of keys (SlimInfer, equation 1): score_u = mean over heads h of mean(q)_h . pool(k in u)_g(h).

The product is linear in the query, so the mean queries of the heads of a kv head are summed first:
  unit_query   query_g = sum over heads h of g of mean over i of q_i,h
  unit_scores  score_u = sum over g of query_g . pool(k in u)_g / heads
All sums are fp32, in a fixed order.
"""

import triton
import triton.language as tl

from common import INFINITY


@triton.jit
def unit_query(q, y, m, group, head_dim, sq, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    kv_head = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for head in range(kv_head * group, (kv_head + 1) * group):
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in range(0, m, ROWS):
            row = first + tl.arange(0, ROWS)[:, None]
            at = q + row.to(tl.int64) * sq + head * head_dim + column[None, :]
            sums += tl.load(at, mask=(row < m) & (column[None, :] < head_dim), other=0.0)
        total += tl.sum(sums, axis=0) / m
    tl.store(y + kv_head * head_dim + column, total, mask=column < head_dim)


@triton.jit
def unit_scores(query, k, y, n, width, heads, unit, sk, flags, TILE: tl.constexpr):
    maximum = (flags & 1) != 0
    first = tl.program_id(0) * unit
    end = tl.minimum(first + unit, n)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, width, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < width
        pooled = tl.where(maximum, -INFINITY, 0.0) + tl.zeros((TILE,), tl.float32)
        at = k + first.to(tl.int64) * sk + column
        for _ in range(first, end):
            key = tl.load(at, mask=inside, other=0.0).to(tl.float32)
            at += sk
            pooled = tl.where(maximum, tl.maximum(pooled, key), pooled + key)
        pooled = tl.where(maximum, pooled, pooled / (end - first))
        total += tl.load(query + column, mask=inside, other=0.0) * pooled
    tl.store(y + tl.program_id(0), tl.sum(total) / heads)
