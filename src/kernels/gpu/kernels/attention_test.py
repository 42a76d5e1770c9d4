"""Attention, dense and under a pattern, interpreted, against fp64 and, bit for bit, between calls; the cases of
src/kernels/conformance_attention_test.cpp and conformance_sparse_test.cpp."""

import unittest

from attention_support import ALL, SHORT, AttentionCase, Data, attention, key_tiles, weights
from interpreted import Case, LONG, aligned, from_bf16, normal, placed, run, to_bf16
import numpy as np

CASES = ALL if LONG else SHORT
TOLERANCE = 2.5e-2  # bf16 operands, as for the cpu backend


def attend(data: Data, name: str, lse=None) -> np.ndarray:
    out = placed(np.full(data.q.shape, np.nan, np.float32))
    c = data.case
    run(name, data.q, data.k, data.v, data.query_positions, data.key_positions, key_tiles(data), data.slopes, out, lse, data.m,
        data.n, data.group, c.head_dim, data.q.shape[1], data.k.shape[1], data.v.shape[1], out.shape[1], data.window,
        data.scale, int(lse is not None), heads=c.heads)
    return out


class Dense(Case):
    def test_matches_fp64(self):
        for c in CASES:
            data = Data(c)
            for name in data.variants("attention", True):
                lse = np.zeros((c.heads, c.m), np.float32)
                self.close(attend(data, name, lse), attention(data), TOLERANCE, f"{name} {c}")
                q = data.q.astype(np.float64).reshape(c.m, c.heads, -1)
                share = weights(data)
                # log(sum exp(s)) = s_j - log(weight_j) for any key: take the one at the query's own position.
                own = np.searchsorted(data.key_positions, data.query_positions)
                k = from_bf16(data.k).astype(np.float64).reshape(data.n, c.kv_heads, -1)[own]
                s = np.einsum("ihd,ihd->hi", q, np.repeat(k, data.group, 1)) * data.scale
                exact = s - np.log(share[:, np.arange(c.m), own])
                self.assertLessEqual(np.max(np.abs(lse - exact)), 0.05, f"{name} {c}")

    def test_a_query_is_the_same_in_any_company(self):
        for c in CASES:
            data = Data(c)
            for name in data.variants("attention", True):
                whole = attend(data, name)
                for rows in (np.arange(1, c.m, 3), np.array([c.m - 1])):
                    if len(rows):
                        self.same(attend(data.rows(rows), name), whole[rows], f"{name} {c}")

    def test_later_keys_change_nothing(self):
        data = Data(AttentionCase(2, 1, 64, 200, 200))
        whole = attend(data, "attention_d64")
        for count in (1, 127, 199):
            part = data.rows(slice(0, count)).keys(slice(0, count))
            self.same(attend(part, "attention_d64"), whole[:count], str(count))

    def test_huge_scores_stay_a_weighted_mean(self):
        data = Data(AttentionCase(2, 1, 64, 90, 90))
        data.q = placed(normal(90, 128, 5, 1e4))
        v = from_bf16(data.v)
        for name in data.variants("attention"):
            out = attend(data, name)
            for i in range(90):
                low, high = np.tile(v[:i + 1].min(0), 2), np.tile(v[:i + 1].max(0), 2)
                self.assertTrue(np.all((out[i] >= low - 0.02) & (out[i] <= high + 0.02)), f"{name} {i}")


def random_pattern(data: Data, query_block: int, key_block: int, blocks: float, columns: float) -> dict:
    """As RandomPattern of conformance_sparse_test.cpp: random blocks and columns, and the diagonal blocks; some entries beyond
    the cache and beyond all queries."""
    random = np.random.default_rng(7)
    heads = []
    before = data.n - data.m
    for h in range(data.case.heads):
        if h % 2 == 1:
            heads.append(heads[-1])
            continue
        listed = []
        for q in range(0, data.m, query_block):
            first, last = (before + q) // key_block, (before + min(q + query_block, data.m) - 1) // key_block
            chosen = [j for j in range(last + 1) if j >= first or random.random() < blocks]
            listed.append(chosen + ([last + 1] if random.random() < 0.3 else []))
        heads.append(([j for j in range(data.n + 5) if random.random() < columns], listed))
    return {"query_block": query_block, "key_block": key_block, "heads": heads}


def materialise(pattern: dict, m: int, n: int) -> np.ndarray:
    mask = np.zeros((len(pattern["heads"]), m, n), bool)
    for h, (columns, blocks) in enumerate(pattern["heads"]):
        mask[h][:, [j for j in columns if j < n]] = True
        for i in range(m):
            for b in blocks[i // pattern["query_block"]] if blocks else []:
                mask[h, i, b * pattern["key_block"]:(b + 1) * pattern["key_block"]] = True
    return mask


def sparse(data: Data, pattern: dict, name: str, first_query: int = 0) -> np.ndarray:
    """Lays the pattern out for the kernel, for the queries [first_query, first_query + m) of the layer."""
    size = pattern["query_block"]
    tiles, lists, blocks, columns = [], [], [], []
    words = -(-max([b + 1 for _, listed in pattern["heads"] for one in listed for b in one], default=0) // 32)
    first_block, last_block = first_query // size, (first_query + data.m - 1) // size
    chosen = np.zeros((last_block - first_block + 1, data.case.heads, max(words, 1)), np.uint32)
    for block in range(first_block, last_block + 1):
        begin, end = max(block * size - first_query, 0), min((block + 1) * size - first_query, data.m)
        tiles += [(i, min(64, end - i), block - first_block) for i in range(begin, end, 64)]
        for h, (own_columns, listed) in enumerate(pattern["heads"]):
            entries = listed[block] if listed else []
            lists.append((len(blocks), len(entries), len(columns), len(own_columns)))
            blocks += entries
            columns += own_columns
            for b in entries:
                chosen[block - first_block, h, b // 32] |= np.uint32(1) << np.uint32(b % 32)
    array = lambda x: np.array(x if len(x) else [0], np.int32)  # noqa: E731
    out = placed(np.full(data.q.shape, np.nan, np.float32))
    c = data.case
    run(name, data.q, data.k, data.v, data.query_positions, data.key_positions, array(tiles), array(lists), array(blocks),
        array(columns), chosen.view(np.int32), data.slopes, out, data.m, data.n, data.group, c.head_dim, data.q.shape[1],
        data.k.shape[1], data.v.shape[1], out.shape[1], words, max(pattern["key_block"], 1), data.window, data.scale,
        tiles=len(tiles), heads=c.heads)
    return out


SPARSE_SHORT = [
    (AttentionCase(1, 1, 4, 1, 1), 1, 1, 1, 0),
    (AttentionCase(2, 1, 64, 200, 200), 64, 64, 0.3, 0.05),
    (AttentionCase(2, 1, 80, 150, 60, hole=3, window=90, alibi=True), 50, 7, 0.2, 0.1),
]
SPARSE_ALL = SPARSE_SHORT + [
    (AttentionCase(2, 2, 64, 200, 200), 64, 64, 0.3, 0.05),
    (AttentionCase(4, 1, 32, 290, 290), 100, 7, 0.2, 0.1),
    (AttentionCase(4, 2, 64, 300, 120, hole=3), 32, 16, 0.3, 0.1),
    (AttentionCase(4, 1, 64, 250, 250, window=90), 64, 32, 0.4, 0.2),
    (AttentionCase(4, 2, 80, 333, 333), 128, 32, 0.3, 0),
    (AttentionCase(7, 1, 64, 260, 150), 64, 64, 0.5, 0.02),
    (AttentionCase(14, 2, 64, 300, 1), 1, 16, 0.3, 0),
    (AttentionCase(8, 2, 40, 150, 1, hole=2), 1, 16, 0.2, 0.1),
    (AttentionCase(4, 4, 64, 200, 200, alibi=True), 64, 64, 0.3, 0.1),
    (AttentionCase(7, 1, 128, 257, 90, hole=2, window=100, alibi=True), 48, 16, 0.4, 0.2),
    (AttentionCase(2, 1, 16, 500, 500), 512, 64, 0.5, 0),
    (AttentionCase(2, 1, 16, 4500, 40), 16, 64, 0.9, 0.5),
    (AttentionCase(2, 1, 16, 4500, 130, window=2600), 128, 64, 0.9, 0.5),
    (AttentionCase(4, 2, 64, 700, 260), 64, 128, 0.4, 0),
]


class Sparse(Case):
    cases = SPARSE_ALL if LONG else SPARSE_SHORT

    def test_matches_fp64(self):
        for c, *shape in self.cases:
            data = Data(c)
            pattern = random_pattern(data, *shape)
            for name in data.variants("sparse_attention"):
                self.close(sparse(data, pattern, name), attention(data, materialise(pattern, data.m, data.n)), TOLERANCE,
                           f"{name} {c} {shape}")

    def test_a_row_is_the_same_in_any_call(self):
        for c, *shape in self.cases:
            data = Data(c)
            pattern = random_pattern(data, *shape)
            name = data.variants("sparse_attention")[-1]
            whole = sparse(data, pattern, name)
            for first, count in ((0, 1), (c.m // 2, 7), (c.m // 3, 64), (c.m - 1, 1)):
                count = min(count, c.m - first)
                part = data.rows(slice(first, first + count))
                self.same(sparse(part, pattern, name, first), whole[first:first + count], f"{c} {first} + {count}")
                part = part.keys(slice(0, data.n - c.m + first + count))  # the first rows of the cache only
                self.same(sparse(part, pattern, name, first), whole[first:first + count], f"{c} {first} + {count}")

    def test_a_pattern_of_everything_is_dense_attention(self):
        for c in CASES:
            data = Data(c)
            everything = list(range(data.n))
            for name, dense in zip(data.variants("sparse_attention"), data.variants("attention", True)):
                expected = attend(data, dense)
                for listed, columns, key_block in (([everything] * -(-c.m // 64), [], 1), ([], everything, 0)):
                    pattern = {"query_block": 64, "key_block": key_block, "heads": [(columns, listed)] * c.heads}
                    self.same(sparse(data, pattern, name), expected, f"{name} {c} {key_block}")

    def test_a_head_without_keys_is_zero(self):
        data = Data(AttentionCase(4, 2, 64, 50, 3))
        pattern = random_pattern(data, 64, 16, 0.5, 0.1)
        pattern["heads"][2] = ([], [[]])
        out = sparse(data, pattern, "sparse_attention_d64").reshape(3, 4, 64)
        self.assertTrue(np.all(out[:, 2] == 0) and np.all(out[:, 3] != 0))

    def test_columns_of_wider_matrices(self):
        for offset, name in ((64, "sparse_attention_d64"), (50, "sparse_attention_any")):  # 50: no alignment
            c = AttentionCase(2, 1, 64, 90, 90)
            data = Data(c)
            wide_q, wide_k = normal(90, 400, 5), to_bf16(normal(90, 256, 6))
            pattern = random_pattern(data, 16, 16, 0.4, 0.1)
            narrow = Data(c)
            narrow.q, narrow.k, narrow.v = wide_q[:, offset:offset + 128], wide_k[:, 64:128], wide_k[:, 192:]
            expected = attention(narrow, materialise(pattern, 90, 90))
            memory = aligned((91, 400), np.float32)
            memory[:90] = wide_q
            keys = placed(wide_k)
            pick = lambda x, at: x.reshape(-1)[at:]  # noqa: E731
            out = aligned((91, 320), np.float32)
            out[...] = 3
            tiles, lists, blocks, columns, chosen, words = self.laid_out(data, pattern)
            run(name, pick(memory, offset), pick(keys, 64), pick(keys, 192), data.query_positions, data.key_positions, tiles,
                lists, blocks, columns, chosen, data.slopes, pick(out, offset), 90, 90, 2, 64, 400, 256, 256, 320, words, 16, 0,
                data.scale, tiles=len(tiles), heads=2)
            self.close(out[:90, offset:offset + 128], expected, TOLERANCE)
            self.assertTrue(np.all(out[:, :offset] == 3) and np.all(out[:, offset + 128:] == 3) and np.all(out[90] == 3))

    @staticmethod
    def laid_out(data: Data, pattern: dict):
        tiles, lists, blocks, columns = [], [], [], []
        chosen = np.zeros((-(-data.m // 16), data.case.heads), np.int32)
        for b in range(-(-data.m // 16)):
            tiles.append((16 * b, min(16, data.m - 16 * b), b))
            for h, (own, listed) in enumerate(pattern["heads"]):
                lists.append((len(blocks), len(listed[b]), len(columns), len(own)))
                blocks += listed[b]
                columns += own
                chosen[b, h] = sum(1 << j for j in listed[b])
        return *(np.array(x, np.int32) for x in (tiles, lists, blocks, columns)), chosen, 1


if __name__ == "__main__":
    unittest.main()
