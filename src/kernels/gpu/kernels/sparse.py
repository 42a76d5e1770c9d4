"""Attention under a pattern: the function of attention.py over the rows that a list names.

A program handles up to BM queries of one query block and one head. It reads BN rows of the list at a time: first the rows
of the listed key blocks, then the listed columns. A column in a listed block was there already, and is left out.
"""

import triton
import triton.language as tl

from attention import accumulate, load_cache, load_queries, scores_of, seen, store_heads
from common import INFINITY, LOG2E, multiply


@triton.jit
def listed_tile(row, valid, queries, k, v, position, key_positions, n, kv_head, sk, sv, head_dim, window, slope, factor, best,
                total, acc, D: tl.constexpr, EXACT: tl.constexpr, ALIBI: tl.constexpr):
    """The cache rows `row` [BN], where `valid`."""
    valid = valid & (row < n)
    at = tl.where(valid, row, 0)
    keys = load_cache(k, at, kv_head, sk, head_dim, D, EXACT)
    dots = multiply(queries, tl.trans(keys), tl.zeros((queries.shape[0], row.shape[0]), tl.float32))
    key_position = tl.load(key_positions + at)
    dots = scores_of(dots, position, key_position, slope, factor, ALIBI)
    dots = tl.where(seen(position, key_position, window) & valid[None, :], dots, -INFINITY)
    values = load_cache(v, at, kv_head, sv, head_dim, D, EXACT)
    return accumulate(dots, values, best, total, acc, factor, ALIBI)


@triton.jit
def sparse_attention(q, k, v, query_positions, key_positions, tiles, lists, blocks, columns, chosen, slopes, out, m, n,
                     group, head_dim, sq, sk, sv, so, words, key_block, window, scale, BM: tl.constexpr,
                     BN: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr, ALIBI: tl.constexpr):
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    if EXACT:
        head_dim = D
    first = tl.load(tiles + 3 * tile)
    count = tl.load(tiles + 3 * tile + 1)
    entry = (tl.load(tiles + 3 * tile + 2) * tl.num_programs(1) + head).to(tl.int64)
    row = first + tl.arange(0, BM)
    at = tl.minimum(row, first + count - 1)
    queries = load_queries(q, at, head, sq, head_dim, D, EXACT)
    position = tl.load(query_positions + at)
    slope = tl.load(slopes + head) * LOG2E if ALIBI else 0.0
    factor = scale * LOG2E
    best = tl.full((BM,), -INFINITY, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    block_list = blocks + tl.load(lists + 4 * entry)
    block_rows = tl.load(lists + 4 * entry + 1) * key_block
    column_list = columns + tl.load(lists + 4 * entry + 2)
    column_count = tl.load(lists + 4 * entry + 3)
    for start in range(0, block_rows, BN):
        index = start + tl.arange(0, BN)
        valid = index < block_rows
        block = tl.load(block_list + index // key_block, mask=valid, other=0)
        best, total, acc = listed_tile(block * key_block + index % key_block, valid, queries, k, v, position, key_positions, n,
                                       head // group, sk, sv, head_dim, window, slope, factor, best, total, acc, D, EXACT,
                                       ALIBI)
    for start in range(0, column_count, BN):
        index = start + tl.arange(0, BN)
        valid = index < column_count
        column = tl.load(column_list + index, mask=valid, other=0)
        if words != 0:
            block = column // key_block
            inside = valid & (block < 32 * words)
            word = tl.load(chosen + entry * words + block // 32, mask=inside, other=0)
            valid = valid & (((word >> (block % 32)) & 1) == 0)
        best, total, acc = listed_tile(column, valid, queries, k, v, position, key_positions, n, head // group, sk, sv,
                                       head_dim, window, slope, factor, best, total, acc, D, EXACT, ALIBI)
    store_heads(out, acc, total, first, tl.arange(0, BM) < count, head, so, head_dim, D, EXACT)
