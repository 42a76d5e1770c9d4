"""Operations on the rows of fp32 matrices x, y [m, d], one row (or one tile of a row) a program.

  rms_norm    y = x / sqrt(mean(x^2) + eps) * weight                                   RMSNorm, arXiv 1910.07467
  layer_norm  y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias    LayerNorm, arXiv 1607.06450
  rope        (a, b) = (a cos - b sin, a sin + b cos) for each pair of a head          RoPE, arXiv 2104.09864
  silu_mul    gate = silu(gate) * up, silu(g) = g / (1 + exp(-g))                      SwiGLU, arXiv 2002.05202
  gelu        x = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))                    GELU, arXiv 1606.08415
  add         y = y + x
  scatter_add y[rows[i]] = y[rows[i]] + x[i],  gather  y[i] = x[rows[i]]               rows [m]

weight and bias [d]; cos and sin [positions, pairs]; x of rope [m, heads * head_dim]. A row's result depends on that row
alone. Sums run over tiles of fixed size in order.
"""

import triton
import triton.language as tl

from common import silu


@triton.jit
def rms_norm(x, weight, y, d, sx, sy, eps, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * sx
    y += row * sy
    squares = tl.zeros((TILE,), tl.float32)
    for first in range(0, d, TILE):
        column = first + tl.arange(0, TILE)
        value = tl.load(x + column, mask=column < d, other=0.0)
        squares += value * value
    inverse = 1.0 / tl.sqrt_rn(tl.sum(squares) / d + eps)
    for first in range(0, d, TILE):
        column = first + tl.arange(0, TILE)
        inside = column < d
        value = tl.load(x + column, mask=inside)
        tl.store(y + column, value * inverse * tl.load(weight + column, mask=inside), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, y, d, sx, sy, eps, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * sx
    y += row * sy
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, d, TILE):
        column = first + tl.arange(0, TILE)
        total += tl.load(x + column, mask=column < d, other=0.0)
    mean = tl.sum(total) / d
    # The mean of squared differences; mean(x^2) - mean^2 would cancel for a large mean.
    squares = tl.zeros((TILE,), tl.float32)
    for first in range(0, d, TILE):
        column = first + tl.arange(0, TILE)
        centred = tl.where(column < d, tl.load(x + column, mask=column < d, other=0.0) - mean, 0.0)
        squares += centred * centred
    inverse = 1.0 / tl.sqrt_rn(tl.sum(squares) / d + eps)
    for first in range(0, d, TILE):
        column = first + tl.arange(0, TILE)
        inside = column < d
        value = (tl.load(x + column, mask=inside) - mean) * inverse
        value = value * tl.load(weight + column, mask=inside) + tl.load(bias + column, mask=inside)
        tl.store(y + column, value, mask=inside)


@triton.jit
def rope(x, positions, cos, sin, head_dim, pairs, sx, st, interleaved, PAIRS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * sx + tl.program_id(1) * head_dim
    entry = tl.load(positions + row).to(tl.int64) * st
    for start in range(0, pairs, PAIRS):
        pair = start + tl.arange(0, PAIRS)
        inside = pair < pairs
        first = tl.where(interleaved != 0, 2 * pair, pair)
        second = first + tl.where(interleaved != 0, 1, pairs)
        a = tl.load(x + first, mask=inside)
        b = tl.load(x + second, mask=inside)
        c = tl.load(cos + entry + pair, mask=inside)
        s = tl.load(sin + entry + pair, mask=inside)
        tl.store(x + first, a * c - b * s, mask=inside)
        tl.store(x + second, a * s + b * c, mask=inside)


@triton.jit
def silu_mul(gate, up, d, sx, sy, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    value = silu(tl.load(gate + row * sx + column, mask=inside)) * tl.load(up + row * sy + column, mask=inside)
    tl.store(gate + row * sx + column, value, mask=inside)


@triton.jit
def gelu(x, d, sx, TILE: tl.constexpr):
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    x += tl.program_id(0).to(tl.int64) * sx
    value = tl.load(x + column, mask=inside, other=0.0)
    # 0.5 (1 + tanh(z)) = 1 / (1 + exp(-2 z)); exp overflows to infinity, which gives 0.
    z = 0.79788456 * value * (1.0 + 0.044715 * value * value)
    tl.store(x + column, value / (1.0 + tl.exp(-2.0 * z)), mask=inside)


@triton.jit
def add(x, y, d, sx, sy, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    value = tl.load(y + row * sy + column, mask=inside) + tl.load(x + row * sx + column, mask=inside)
    tl.store(y + row * sy + column, value, mask=inside)


@triton.jit
def scatter_add(x, rows, y, d, sx, sy, TILE: tl.constexpr):
    """Rows are distinct, so no two programs write the same place."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    y += tl.load(rows + row).to(tl.int64) * sy
    value = tl.load(y + column, mask=inside) + tl.load(x + row * sx + column, mask=inside)
    tl.store(y + column, value, mask=inside)


@triton.jit
def gather(x, rows, y, d, sx, sy, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < d
    x += tl.load(rows + row).to(tl.int64) * sx
    tl.store(y + row * sy + column, tl.load(x + column, mask=inside), mask=inside)
