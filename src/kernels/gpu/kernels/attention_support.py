"""Attention cases and oracles that the tests share; the cases of src/kernels/conformance_support.h."""

import dataclasses

from interpreted import aligned, from_bf16, normal, placed, to_bf16
import numpy as np


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    heads: int
    kv_heads: int
    head_dim: int
    n: int              # positions [0, n)
    m: int              # queries, at the last m positions
    hole: int = 0       # every hole-th position has no key, unless a query has that position
    window: int = 0
    alibi: bool = False
    together: bool = False  # all queries are at the last position


# A few small ones, because the interpreter takes milliseconds for a tile.
SHORT = [
    AttentionCase(2, 1, 8, 5, 5),
    AttentionCase(2, 1, 64, 140, 140, window=50),
    AttentionCase(2, 1, 128, 150, 37, hole=3),
    AttentionCase(2, 1, 80, 90, 90, window=30, alibi=True),
    AttentionCase(2, 2, 64, 140, 20, window=40, together=True),
]
ALL = SHORT + [
    AttentionCase(1, 1, 4, 1, 1),
    AttentionCase(3, 3, 4, 19, 19),
    AttentionCase(4, 4, 64, 33, 33),
    AttentionCase(4, 2, 80, 70, 70),
    AttentionCase(4, 1, 128, 150, 37),
    AttentionCase(7, 1, 64, 129, 129),
    AttentionCase(14, 2, 64, 100, 1),
    AttentionCase(2, 1, 64, 700, 260),
    AttentionCase(4, 2, 64, 200, 200, window=50),
    AttentionCase(4, 2, 64, 90, 90, window=1),
    AttentionCase(4, 4, 64, 111, 111, alibi=True),
    AttentionCase(4, 1, 8, 90, 90, window=30, alibi=True),
    AttentionCase(4, 2, 64, 300, 50, hole=3),
    AttentionCase(7, 1, 128, 257, 4, hole=2, alibi=True),
    AttentionCase(2, 2, 80, 140, 30, hole=2, window=40),
    AttentionCase(4, 2, 64, 140, 30, window=40, together=True),
]


class Data:
    """Owns the data of a call. Keys and values are bf16; `slopes` are zeros without ALiBi."""

    def __init__(self, c: AttentionCase, seed: int = 1):
        self.case = c
        queries = np.arange(c.n - c.m, c.n)
        kept = [p for p in range(c.n) if p >= c.n - c.m or c.hole == 0 or p % c.hole != 1]
        self.key_positions = np.array(kept, np.int32)
        self.query_positions = np.full(c.m, c.n - 1, np.int32) if c.together else queries.astype(np.int32)
        self.q = placed(normal(c.m, c.heads * c.head_dim, seed, 1.5))
        self.k = placed(to_bf16(normal(len(kept), c.kv_heads * c.head_dim, seed + 1)))
        self.v = placed(to_bf16(normal(len(kept), c.kv_heads * c.head_dim, seed + 2)))
        self.slopes = np.array([2.0**(-8 * (h + 1) / c.heads) if c.alibi else 0 for h in range(c.heads)], np.float32)
        self.scale = 1 / np.sqrt(c.head_dim)
        self.window = c.window

    n = property(lambda self: len(self.key_positions))
    m = property(lambda self: len(self.query_positions))
    group = property(lambda self: self.case.heads // self.case.kv_heads)

    def rows(self, rows) -> "Data":
        """Some queries of the call."""
        some = Data.__new__(Data)
        some.__dict__.update(self.__dict__)
        some.q, some.query_positions = placed(self.q[rows]), np.ascontiguousarray(self.query_positions[rows])
        return some

    def keys(self, rows) -> "Data":
        """Some keys of the call."""
        some = Data.__new__(Data)
        some.__dict__.update(self.__dict__)
        some.k, some.v = placed(self.k[rows]), placed(self.v[rows])
        some.key_positions = np.ascontiguousarray(self.key_positions[rows])
        return some

    def variants(self, name: str, alibi: bool = False) -> list[str]:
        """The variants of a kernel that may serve this case."""
        result = [f"{name}_any"]
        if self.case.head_dim in (64, 128):
            if alibi and self.case.alibi:
                result.append(f"{name}_alibi_d{self.case.head_dim}")
            if not self.case.alibi:
                result.append(f"{name}_d{self.case.head_dim}")
        return result

    def seen(self) -> np.ndarray:
        distance = self.query_positions[:, None].astype(np.int64) - self.key_positions[None, :]
        return (distance >= 0) & ((self.window == 0) | (distance < self.window))


def weights(data: Data, mask: np.ndarray | None = None) -> np.ndarray:
    """softmax(scale q k^T + bias), fp64 [heads, m, n]; `mask` [heads, m, n] or none. A query without keys has zeros."""
    c = data.case
    q = data.q.astype(np.float64).reshape(data.m, c.heads, c.head_dim)
    k = from_bf16(data.k).astype(np.float64).reshape(data.n, c.kv_heads, c.head_dim)
    s = np.einsum("ihd,jhd->hij", q, np.repeat(k, data.group, 1)) * data.scale
    distance = data.key_positions[None, :] - data.query_positions[:, None].astype(np.float64)
    s += data.slopes[:, None, None].astype(np.float64) * distance
    s = np.where(data.seen() if mask is None else data.seen() & mask, s, -np.inf)
    top = np.max(s, axis=2, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = np.sum(e, axis=2, keepdims=True)
    return e / np.where(total == 0, 1, total)


def attention(data: Data, mask: np.ndarray | None = None) -> np.ndarray:
    c = data.case
    v = np.repeat(from_bf16(data.v).astype(np.float64).reshape(data.n, c.kv_heads, c.head_dim), data.group, 1)
    return np.einsum("hij,jhd->ihd", weights(data, mask), v).reshape(data.m, -1)


def key_tiles(data: Data, rows: int = 128, keys: int = 128) -> np.ndarray:
    """The `tiles` of the attention kernel."""
    tiles = []
    for first in range(0, data.m, rows):
        p = data.query_positions[first:first + rows].astype(np.int64)
        oldest, newest = p[0], p[-1]
        end = np.searchsorted(data.key_positions, newest, "right")          # keys that some query sees
        full_end = np.searchsorted(data.key_positions, oldest, "right")     # keys that every query sees
        begin = full_begin = 0
        if data.window:
            begin = np.searchsorted(data.key_positions, oldest - data.window, "right")
            full_begin = np.searchsorted(data.key_positions, newest - data.window, "right")
        begin, full_begin, full_end, end = begin // keys, -(-full_begin // keys), full_end // keys, -(-end // keys)
        full_begin = min(full_begin, end)
        tiles.append((begin, full_begin, max(full_begin, full_end), max(end, full_begin)))
    return np.array(tiles, np.int32)
