"""y = x w^T, with sums in fp32 over k in order, in tiles fixed by the variant: no split over k and no atomics, so a row's
result depends on that row and the weight alone.

  store  y = x w^T + bias        add  y += x w^T + bias
  gated  y = silu(x gate^T + bias) * (x up^T + bias),  the rows of gate and up interleaved in w
"""

import triton
import triton.language as tl

from common import multiply, silu, to_bf16
from weights import weight_tile

GROUP = tl.constexpr(8)  # tiles of rows whose programs run together, so that their weights are read from the L2 cache


@triton.jit
def finish(y, result, row, column, rows, outputs, sy, flags):
    """y (+)= result, where it is inside."""
    inside = (row[:, None] < rows) & (column[None, :] < outputs)
    at = y + row[:, None].to(tl.int64) * sy + column[None, :]
    if (flags & 4) != 0:
        result = result + tl.load(at, mask=inside, other=0.0)
    tl.store(at, result, mask=inside)


@triton.jit
def add_bias(result, bias, column, outputs, flags):
    end = tl.where((flags & 2) != 0, outputs, 0)
    return result + tl.load(bias + column, mask=column < end, other=0.0)[None, :]


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
        gate, up = tl.split(tl.reshape(acc, (BM, BN // 2, 2)))
        output = tile_n * (BN // 2) + tl.arange(0, BN // 2)
        gate = add_bias(gate, bias, output, outputs, flags)
        up = add_bias(up, bias + outputs, output, outputs, flags)
        finish(y, silu(gate) * up, row, output, rows, outputs, sy, flags)
    else:
        column = tile_n * BN + tl.arange(0, BN)
        finish(y, add_bias(acc, bias, column, outputs, flags), row, column, rows, outputs, sy, flags)


@triton.jit
def decode_product(x, codes, scales, mins, groups, group_mins, bias, y, rows, outputs, inputs, k, sx, sy, zero, group,
                   flags, BITS: tl.constexpr, SUPER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr):
    """For few rows: reads a weight once for each BM rows, and rounds fp32 x to bf16 itself."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    weight_row = column.to(tl.int64)
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
    finish(y, add_bias(acc, bias, column, outputs, flags), row, column, rows, outputs, sy, flags)
