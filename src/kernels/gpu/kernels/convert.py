"""Conversions between the types of activations and of the cache.

  convert     y = x in y's type, with zeros in the columns from d up to the width of y's row
  to_q8_0     per 32 values: d = max |x| / 127 in fp16, code = round(x / max |x| * 127), ties away from zero
  from_q8_0   y = d * code
"""

import triton
import triton.language as tl

from common import to_bf16


@triton.jit
def convert(x, y, d, width, sx, sy, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    value = tl.load(x + row * sx + column, mask=column < d, other=0.0).to(tl.float32)
    if y.dtype.element_ty == tl.bfloat16:
        value = to_bf16(value)
    else:
        value = value.to(y.dtype.element_ty)
    tl.store(y + row * sy + column, value, mask=column < width)


@triton.jit
def to_q8_0(x, y, d, sx, sy, BLOCKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < d // 32
    value = tl.arange(0, 32)
    v = tl.load(x + row * sx + block[:, None] * 32 + value[None, :], mask=inside[:, None], other=0.0)
    largest = tl.max(tl.abs(v), axis=1)
    scale = largest / 127.0
    inverse = tl.where(scale != 0, 1.0 / tl.where(scale != 0, scale, 1.0), 0.0)
    # 1 / scale overflows below 3e-39; such a block holds zeros in fp16 anyway.
    scaled = tl.where(inverse[:, None] < 1e37, v * inverse[:, None], 0.0)
    code = tl.where(scaled < 0, tl.ceil(scaled - 0.5), tl.floor(scaled + 0.5)).to(tl.int8)
    start = y + row * sy + block.to(tl.int64) * 34
    tl.store(start.to(tl.pointer_type(tl.float16)), scale.to(tl.float16), mask=inside)
    tl.store(start[:, None] + 2 + value[None, :], code, mask=inside[:, None])


@triton.jit
def from_q8_0(x, y, d, sx, sy, BLOCKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < d // 32
    value = tl.arange(0, 32)
    start = x + row * sx + block.to(tl.int64) * 34
    scale = tl.load(start.to(tl.pointer_type(tl.float16)), mask=inside, other=0.0).to(tl.float32)
    code = tl.load(start[:, None] + 2 + value[None, :], mask=inside[:, None], other=0).to(tl.float32)
    out = y + row * sy + block[:, None] * 32 + value[None, :]
    tl.store(out, to_bf16(scale[:, None] * code), mask=inside[:, None])
