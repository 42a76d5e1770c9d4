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
def silu(x):
    return x / (1.0 + tl.exp(-x))
