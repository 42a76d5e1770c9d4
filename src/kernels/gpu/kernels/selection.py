"""Rows in rank order: score descending, then row ascending; a NaN ranks last. The order of src/kernels/selection.cpp.

A key is an integer that ascends in rank order, so keys are distinct:
  code(score) = bits with the order of floats reversed; NaN the largest; -0 as 0
  key = (code << 32 | row) with the top bit flipped, because Triton compares signed
A run is sorted by counting: a key's place is the number of smaller keys. Two sorted runs are merged the same way: a key's
place is its place in its own run plus the number of smaller keys in the other, found by bisection.
"""

import triton
import triton.language as tl

LARGEST = tl.constexpr(0x7FFFFFFFFFFFFFFF)


@triton.jit
def key_of(score, row):
    bits = tl.where(score == 0, 0.0, score).to(tl.int32, bitcast=True)
    # As a signed number: negative floats count down from their magnitude. ~x reverses an order.
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    code = tl.where(score == score, ~ascending, 0x7FFFFFFF)
    return (code.to(tl.int64) << 32) | row.to(tl.int64)


@triton.jit
def rank_block(scores, keys, n, RUN: tl.constexpr, STEP: tl.constexpr):
    start = tl.program_id(0) * RUN
    row = start + tl.arange(0, RUN)
    own = key_of(tl.load(scores + row, mask=row < n, other=0.0), row)
    place = tl.zeros((RUN,), tl.int32)
    for first in range(start, tl.minimum(start + RUN, n), STEP):
        other_row = first + tl.arange(0, STEP)
        other = key_of(tl.load(scores + other_row, mask=other_row < n, other=0.0), other_row)
        other = tl.where(other_row < n, other, LARGEST)
        place += tl.sum((other[None, :] < own[:, None]).to(tl.int32), axis=1)
    tl.store(keys + start + place, own, mask=row < n)


@triton.jit
def merge_runs(keys, y, n, run, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < n
    own = tl.load(keys + at, mask=inside, other=LARGEST)
    pair = at // (2 * run) * (2 * run)
    first = at < pair + run
    # The other run, [low, high), may be short or absent.
    begin = tl.minimum(tl.where(first, pair + run, pair), n)
    low = begin
    high = tl.minimum(begin + run, n)
    steps = run
    while steps > 0:  # the interval halves each time
        middle = (low + high) // 2
        open = low < high
        less = open & (tl.load(keys + middle, mask=inside & open, other=LARGEST) < own)
        low = tl.where(less, middle + 1, low)
        high = tl.where(open & (less == 0), middle, high)
        steps = steps // 2
    place = tl.where(first, at, at - run) + (low - begin)
    tl.store(y + place, own, mask=inside)
