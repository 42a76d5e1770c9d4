"""Rows of a table or a weight, dequantised: y[i] = table[ids[i]], fp32."""

import triton
import triton.language as tl

from weights import weight_tile


@triton.jit
def embed_plain(table, ids, y, d, sx, sy, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    value = tl.load(table + tl.load(ids + row).to(tl.int64) * sx + column, mask=inside)
    tl.store(y + row * sy + column, value.to(tl.float32), mask=inside)


@triton.jit
def embed(codes, scales, mins, groups, group_mins, ids, y, m, d, k, sy, zero, group, flags, BITS: tl.constexpr,
          SUPER: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * N + tl.arange(0, N)
    first = tl.program_id(1) * K
    source = tl.load(ids + row, mask=row < m, other=0).to(tl.int64)
    w = weight_tile(codes, scales, mins, groups, group_mins, source, first, k, zero, group, flags & 1, BITS, SUPER, N, K)
    column = first + tl.arange(0, K)[None, :]
    tl.store(y + row[:, None].to(tl.int64) * sy + column, w, mask=(row[:, None] < m) & (column < d))
