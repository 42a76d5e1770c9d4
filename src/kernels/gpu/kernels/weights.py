"""Tiles of a weight [rows, k] in device memory, as fp32 values. README.md describes the layouts.

  bf16      w = code
  q8, q4    w = scale[k / 32] (code - zero) + min[k / 32]
  q8k, q4k  w = scale[k / 256] group[k / G] (code - zero) - min[k / 256] group_min[k / G],  G = 16 or 32
"""

import triton
import triton.language as tl


@triton.jit
def codes_of(codes, rows, first, k, BITS: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Codes [N, K] of `rows` [N, 1] from column `first` on, as fp32."""
    if BITS == 4:
        packed = tl.load(codes + rows * (k // 2) + first // 2 + tl.arange(0, K // 2)[None, :])
        code = tl.reshape(tl.join(packed & 15, packed >> 4), (N, K))
    else:
        code = tl.load(codes + rows * k + first + tl.arange(0, K)[None, :])
    return code.to(tl.float32)


@triton.jit
def weight_tile(codes, scales, mins, groups, group_mins, rows, first, k, zero, group, has_mins, BITS: tl.constexpr,
                SUPER: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """w[rows, first : first + K], fp32 [N, K]. rows int64 [N]; first is a multiple of K, and K of 32."""
    at = rows[:, None]
    w = codes_of(codes, at, first, k, BITS, N, K)
    if BITS == 16:
        return w
    # G values with one scale and one minimum. Groups of 32 are read as two of 16.
    G: tl.constexpr = 16 if SUPER else 32
    block = first // G + tl.arange(0, K // G)[None, :]
    # A mask is a comparison with a number, not a conjunction with a scalar, of which the interpreter makes integers.
    used = (at >= 0) & (block < tl.where(has_mins != 0, 0x7FFFFFFF, 0))
    if SUPER:
        super_block = at * ((k + 255) // 256) + block // 16
        small = at * (k // group) + block * 16 // group
        scale = tl.load(scales + super_block).to(tl.float32) * tl.load(groups + small).to(tl.float32)
        minimum = (tl.load(mins + super_block, mask=used, other=0.0).to(tl.float32) *
                   -tl.load(group_mins + small, mask=used, other=0).to(tl.float32))
    else:
        scale = tl.load(scales + at * (k // 32) + block).to(tl.float32)
        minimum = tl.load(mins + at * (k // 32) + block, mask=used, other=0.0).to(tl.float32)
    grouped = tl.reshape(w, (N, K // G, G)) - zero
    return tl.reshape(tl.fma(grouped, tl.broadcast_to(scale[:, :, None], (N, K // G, G)),
                             tl.broadcast_to(minimum[:, :, None], (N, K // G, G))), (N, K))
