"""y = x w^T, with sums in fp32 over k in order, in tiles fixed by the variant: no split over k and no atomics, so a row's
result depends on that row and the weight alone.

  store  y = x w^T + bias        add  y += x w^T + bias
  gated  y = silu(x gate^T + bias) * (x up^T + bias)  (SwiGLU, arXiv 2002.05202), the rows of gate and up interleaved in w

x [rows, k] bf16, or [rows, inputs] fp32 in decode_product; w [outputs, k] in the layouts of README.md; bias [outputs] fp32;
y [rows, outputs] fp32.
"""

import triton
import triton.language as tl

from common import multiply, silu, to_bf16
from weights import weight_tile

GROUP = tl.constexpr(8)  # tiles of rows whose programs run together, so that their weights are read from the L2 cache


@triton.jit
def store_part(y, result, first, start, rows, outputs, sy, flags):
    """y (+)= result, rows from `first` and columns from `start` on, where they are inside."""
    row = tl.arange(0, result.shape[0])
    column = start + tl.arange(0, result.shape[1])
    inside = (row[:, None] < rows - first) & (column[None, :] < outputs)
    # Offsets of 32 bits within the tile: pointers of 64 to every value spill.
    at = (y + first.to(tl.int64) * sy) + (row[:, None] * sy + column[None, :])
    if (flags & 4) != 0:
        result = result + tl.load(at, mask=inside, other=0.0)
    tl.store(at, result, mask=inside)


@triton.jit
def halves(x):
    """The left and the right columns."""
    return tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def add_bias(result, bias, start, outputs, flags):
    column = start + tl.arange(0, result.shape[1])
    end = tl.where((flags & 2) != 0, outputs, 0)
    return result + tl.load(bias + column, mask=column < end, other=0.0)[None, :]


@triton.jit
def finish(y, acc, bias, first, start, rows, outputs, sy, flags):
    """acc + bias, by quarters: values and addresses of a whole tile would not fit the registers."""
    WIDTH: tl.constexpr = acc.shape[1]
    left, right = halves(acc)
    for half in tl.static_range(2):
        a, b = halves(left if half == 0 else right)
        at = start + half * (WIDTH // 2)
        store_part(y, add_bias(a, bias, at, outputs, flags), first, at, rows, outputs, sy, flags)
        at += WIDTH // 4
        store_part(y, add_bias(b, bias, at, outputs, flags), first, at, rows, outputs, sy, flags)


@triton.jit
def finish_gated(y, acc, bias, first, start, rows, outputs, sy, flags):
    """silu(gate + bias) * (up + bias) of interleaved columns, by halves."""
    gate, up = tl.split(tl.reshape(acc, (acc.shape[0], acc.shape[1] // 2, 2)))
    gates, ups = halves(gate), halves(up)
    for half in tl.static_range(2):
        at = start + half * (gate.shape[1] // 2)
        g = add_bias(gates[half], bias, at, outputs, flags)
        u = add_bias(ups[half], bias + outputs, at, outputs, flags)
        store_part(y, silu(g) * u, first, at, rows, outputs, sy, flags)


@triton.jit
def tile_of(program, tiles_m, tiles_n):
    """The tile of a program: GROUP tiles of rows, all tiles of outputs, then the next GROUP tiles of rows."""
    group = program // (GROUP * tiles_n)
    size = tl.minimum(tiles_m - group * GROUP, GROUP)
    inside = program % (GROUP * tiles_n)
    return group * GROUP + inside % size, inside // size


@triton.jit
def product(x, codes, scales, mins, groups, group_mins, bias, y, rows, outputs, k, sx, sy, zero, group, flags,
            BITS: tl.constexpr, SUPER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    gated = (flags & 8) != 0
    width = tl.where(gated, 2 * outputs, outputs)
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(rows, BM), tl.cdiv(width, BN))
    row = tile_m * BM + tl.arange(0, BM)
    weight_row = (tile_n * BN + tl.arange(0, BN)).to(tl.int64)
    # Rows beyond the last one read it again, so no load needs a mask.
    xs = x + tl.minimum(row, rows - 1)[:, None].to(tl.int64) * sx + tl.arange(0, BK)[None, :]
    if BITS == 16:
        acc = tl.zeros((BM, BN), tl.float32)
        ws = codes + weight_row[:, None] * k + tl.arange(0, BK)[None, :]
        for _ in range(0, k, BK):
            acc = multiply(tl.load(xs), tl.trans(tl.load(ws)), acc)
            xs += BK
            ws += BK
    else:
        # The other way round, because the tensor cores read their first operand from registers, where codes become
        # values, and the second one from shared memory.
        turned = tl.zeros((BN, BM), tl.float32)
        for first in range(0, k, BK):
            w = weight_tile(codes, scales, mins, groups, group_mins, weight_row, first, k, zero, group, flags & 1, BITS,
                            SUPER, BN, BK)
            turned = multiply(to_bf16(w), tl.trans(tl.load(xs)), turned)
            xs += BK
        acc = tl.trans(turned)
    if gated:
        finish_gated(y, acc, bias, tile_m * BM, tile_n * (BN // 2), rows, outputs, sy, flags)
    else:
        finish(y, acc, bias, tile_m * BM, tile_n * BN, rows, outputs, sy, flags)


@triton.jit
def decode_product(x, codes, scales, mins, groups, group_mins, bias, y, rows, outputs, inputs, k, sx, sy, zero, group,
                   flags, BITS: tl.constexpr, SUPER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """For few rows: reads a weight once for each BM rows, and rounds fp32 x to bf16 itself."""
    # Outputs on the first axis: the others end at 65,535 tiles, too few for a vocabulary above 2 million.
    start = tl.program_id(0) * BN
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    weight_row = (start + tl.arange(0, BN)).to(tl.int64)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        at = first + tl.arange(0, BK)[None, :]
        inside = (row[:, None] < rows) & (at < inputs)
        xs = to_bf16(tl.load(x + row[:, None].to(tl.int64) * sx + at, mask=inside, other=0.0))
        if BITS == 16:
            w = tl.load(codes + weight_row[:, None] * k + at)
        else:
            w = to_bf16(weight_tile(codes, scales, mins, groups, group_mins, weight_row, first, k, zero, group, flags & 1,
                                    BITS, SUPER, BN, BK))
        acc = multiply(xs, tl.trans(w), acc)
    acc = add_bias(acc, bias, start, outputs, flags)
    store_part(y, acc, tl.program_id(1) * BM, start, rows, outputs, sy, flags)
