"""Decode attention, the softmax weights and unit scores, interpreted, against fp64; the cases of
src/kernels/conformance_decode_test.cpp and conformance_weights_test.cpp."""

import unittest

from attention_support import ALL, SHORT, AttentionCase, Data, attention, weights
from interpreted import Case, LONG, from_bf16, normal, placed, run
import numpy as np

CASES = ALL if LONG else SHORT
TOLERANCE = 2.5e-2
PIECE = 256
DECODE = [AttentionCase(4, 2, 64, 515, 2), AttentionCase(2, 1, 40, 300, 2, hole=3, window=200, alibi=True)]
if LONG:
    DECODE += [AttentionCase(14, 2, 64, 700, 2), AttentionCase(4, 1, 128, 515, 1, hole=3),
               AttentionCase(8, 2, 40, 300, 3, window=257), AttentionCase(4, 4, 64, 260, 2, alibi=True)]


def decode(data: Data, name: str, lists: list | None = None, spare: int = 0) -> np.ndarray:
    """`lists`: for each head the rows that a pattern selects. `spare`: pieces of the grid that hold no keys."""
    c = data.case
    unit = 1 if lists is not None else data.group
    ranges, listed = [], []
    for i in range(data.m):
        seen = np.flatnonzero(data.seen()[i])
        for u in range(c.heads // unit):
            if lists is None:
                ranges.append((seen[0], len(seen), -1))
            else:
                rows = np.intersect1d(lists[u], seen)
                ranges.append((0, len(rows), len(listed)))
                listed += rows.tolist()
    pieces = max(1, max(-(-count // PIECE) for _, count, _ in ranges)) + spare
    ranges = np.array(ranges, np.int32)
    partial = np.full(data.m * c.heads * pieces * c.head_dim, np.nan, np.float32)
    stats = np.full(data.m * c.heads * pieces * 2, np.nan, np.float32)
    out = np.full(data.q.shape, np.nan, np.float32)
    run(name, data.q, data.k, data.v, data.query_positions, data.key_positions, data.slopes, ranges,
        np.array(listed or [0], np.int32), partial, stats, pieces, data.group, unit, c.head_dim, data.q.shape[1],
        data.k.shape[1], data.v.shape[1], data.scale, m=data.m, heads=c.heads)
    run("merge_decode", partial, stats, ranges, out, pieces, unit, c.head_dim, out.shape[1], m=data.m, heads=c.heads)
    return out


class Decode(Case):
    def test_matches_fp64(self):
        for c in CASES + DECODE:
            if c.heads // c.kv_heads <= 16:
                data = Data(c).rows(slice(-3, None))
                for name in data.variants("decode_attention", True):
                    self.close(decode(data, name), attention(data), TOLERANCE, f"{name} {c}")

    def test_a_head_and_a_query_are_the_same_alone(self):
        for c in DECODE:
            data = Data(c)
            for name in data.variants("decode_attention", True):
                whole = decode(data, name)
                self.same(decode(data, name, spare=2), whole, "pieces without keys")
                for i in range(c.m):
                    self.same(decode(data.rows(slice(i, i + 1)), name), whole[i:i + 1], f"{name} {c} query {i}")
                    seen = np.flatnonzero(data.seen()[i])
                    alone = data.rows(slice(i, i + 1)).keys(slice(seen[0], seen[-1] + 1))
                    self.same(decode(alone, name), whole[i:i + 1], f"{name} {c} query {i}, keys that it sees")

    def test_a_pattern_is_attention_over_its_keys_alone(self):
        for c in DECODE:
            data = Data(c)
            name = data.variants("decode_attention", True)[-1]
            everything = np.arange(data.n)
            self.same(decode(data, name, [everything] * c.heads), decode(data, name), f"{c} everything")
            some = everything[np.random.default_rng(3).random(data.n) < 0.6]
            last = data.rows(slice(-1, None))
            self.same(decode(last, name, [some] * c.heads), decode(last.keys(some), name), f"{c} some")
            lists = [everything[np.random.default_rng(h).random(data.n) < 0.4] for h in range(c.heads)]
            lists[0] = np.array([], int)
            mask = np.zeros((c.heads, data.m, data.n), bool)
            for h, rows in enumerate(lists):
                mask[h][:, rows] = True
            out = decode(data, name, lists)
            self.close(out, attention(data, mask), TOLERANCE, f"{c} lists")
            self.assertTrue(np.all(out[:, :c.head_dim] == 0), "a head without keys")

    def test_huge_scores_stay_a_weighted_mean(self):
        data = Data(AttentionCase(2, 1, 64, 1200, 1))
        data.q = placed(normal(1, 128, 5, 1e4))
        out, v = decode(data, "decode_attention_d64"), np.tile(from_bf16(data.v), 2)
        self.assertTrue(np.all((out[0] >= v.min(0) - 0.02) & (out[0] <= v.max(0) + 0.02)))


def mass(data: Data, suffix: str, query_weights=None, maximum=False, split=0) -> np.ndarray:
    """`split`: two launches, the first with that many queries."""
    c = data.case
    pieces = -(-data.n // 4096)
    flags = int(maximum) | (query_weights is not None) << 1
    partial = np.full((c.heads, data.n), np.nan, np.float32)
    parts = [slice(0, split), slice(split, c.m)] if split else [slice(0, c.m)]
    for number, part in enumerate(parts):
        d = data.rows(part)
        common = (d.m, d.n, d.group, c.head_dim, d.q.shape[1], d.k.shape[1], d.window, d.scale)
        stats = np.full((pieces, c.heads, d.m, 2), np.nan, np.float32)
        lse = np.full((c.heads, d.m), np.nan, np.float32)
        run(f"attention_lse_{suffix}", d.q, d.k, d.query_positions, d.key_positions, d.slopes, stats, *common, heads=c.heads)
        run("merge_lse", stats, lse, pieces, c.heads * d.m)
        own = None if query_weights is None else np.ascontiguousarray(query_weights[part])
        run(f"attention_mass_{suffix}", d.q, d.k, d.query_positions, d.key_positions, d.slopes, lse, own, partial, *common,
            flags | (number > 0) << 2, heads=c.heads)
    result = np.full((1, data.n), np.nan, np.float32)
    run("merge_mass", partial, result, c.heads, data.n, flags)
    return result


class Mass(Case):
    def check(self, c: AttentionCase) -> None:
        data = Data(c)
        share = weights(data)
        factors = np.array([0.01 if i % 5 == 0 else 1 / (i + 1) for i in range(c.m)], np.float32)
        for name in data.variants("attention_mass"):
            suffix = name.rsplit("_", 1)[1]
            plain = mass(data, suffix)
            self.close(plain, share.sum((0, 1))[None], TOLERANCE, f"{name} {c}")
            self.assertAlmostEqual(float(plain.sum()), c.heads * c.m, delta=1e-4 * c.heads * c.m)
            self.close(mass(data, suffix, factors), (share * factors[:, None]).sum((0, 1))[None], TOLERANCE, f"{name} {c}")
            self.same(mass(data, suffix, np.ones(c.m, np.float32)), plain, "weights of 1")
            self.close(mass(data, suffix, None, True), share.max((0, 1))[None], TOLERANCE, f"{name} {c}")
            self.close(mass(data, suffix, 2 * factors, True), (2 * share * factors[:, None]).max((0, 1))[None], 2 * TOLERANCE,
                       f"{name} {c}")
            if c.m > 64:
                self.same(mass(data, suffix, split=64), plain, "two launches")

    def test_matches_fp64(self):
        for c in CASES:
            self.check(c)

    def test_more_keys_than_a_piece(self):
        self.check(AttentionCase(1, 1, 64, 4400, 2))

    def test_weights_add_up_to_one(self):
        for c in CASES:
            data = Data(c)
            y = np.full((c.m * c.heads, data.n), np.nan, np.float32)
            common = (data.m, data.n, data.group, c.head_dim, data.q.shape[1], data.k.shape[1], data.n, data.window, data.scale)
            run("attention_scores_any", data.q, data.k, data.query_positions, data.key_positions, data.slopes, y, *common,
                heads=c.heads)
            run("softmax_rows", y, data.n, data.n, rows=len(y))
            expected = weights(data).transpose(1, 0, 2).reshape(y.shape)
            self.close(y, expected, TOLERANCE, str(c))
            self.assertTrue(np.all(y[expected == 0] == 0) and np.all(np.abs(y.astype(np.float64).sum(1) - 1) < 1e-5), str(c))


class Units(Case):
    def test_matches_fp64(self):
        for c in CASES:
            if c.n < 19:
                continue
            data = Data(c).rows(slice(-4, None))
            q = data.q.astype(np.float64).reshape(data.m, c.heads, -1).mean(0)
            k = from_bf16(data.k).astype(np.float64).reshape(data.n, c.kv_heads, -1)
            query = np.zeros(c.kv_heads * c.head_dim, np.float32)
            run("unit_query", data.q, query, data.m, data.group, c.head_dim, data.q.shape[1], kv_heads=c.kv_heads)
            for unit in (1, 8):
                for maximum in (0, 1):
                    starts = range(0, data.n, unit)
                    pooled = np.array([(k[s:s + unit].max(0) if maximum else k[s:s + unit].mean(0)) for s in starts])
                    expected = np.einsum("hd,uhd->u", q, np.repeat(pooled, data.group, 1))[None] / c.heads
                    y = np.full((1, len(starts)), np.nan, np.float32)
                    run("unit_scores", query, data.k, y, data.n, data.k.shape[1], c.heads, unit, data.k.shape[1], maximum)
                    self.close(y, expected, 1e-5, f"{c} {unit} {maximum}")


if __name__ == "__main__":
    unittest.main()
