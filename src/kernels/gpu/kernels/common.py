"""What several kernels share."""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
LOG2E = tl.constexpr(1.4426950408889634)
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def multiply(a, b, c):
    """a b + c of bf16 tiles, with sums in fp32."""
    # The interpreter multiplies bf16 as the integers that hold their bits, so it gets fp32, which holds the same values.
    if INTERPRETED:
        result = tl.dot(a.to(tl.float32), b.to(tl.float32), c, input_precision="ieee")
    else:
        result = tl.dot(a, b, c)
    return result


@triton.jit
def to_bf16(x):
    """Rounds fp32 to nearest even."""
    # The interpreter cuts the low bits off instead. Adding 0x7fff and the last bit that stays carries where it must; a NaN
    # would carry into the exponent, so it keeps its upper half, with a bit set that the conversion may not lose.
    if INTERPRETED:
        word = x.to(tl.uint32, bitcast=True)
        rounded = word + 0x7FFF + ((word >> 16) & 1)
        half = tl.where(x == x, rounded >> 16, (word >> 16) | 64)
        result = half.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = x.to(tl.bfloat16)
    return result


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))
