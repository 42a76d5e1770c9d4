// Flash attention over a bf16 cache with vdpbf16ps, in the rows-as-lanes form of kernel_attention.inl: S^T =
// K Q^T and O^T += V^T P^T. Factors come in pairs (of columns, then of keys), whose products are summed in
// fp32. As on AMX, queries and weights are rounded to bf16.
//
// A pair of columns of a key is one 32-bit broadcast. Queries are packed in pairs once per call, weights in
// pairs of keys once per tile. Values, and then also keys, are packed once per tile or once for all tiles of
// rows (pack): a tile took 96 cycles per 16 scores on Zen 4 from a cache with other heads between its rows,
// and takes 84 packed (docs/performance.md). vdpbf16ps treats all lanes alike and independently, so a row's
// bits depend neither on its lane nor on other rows.

static_assert(kPanelVectors == 3 && V::kLanes == 16);

inline __m512bh LoadPairs(const void* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }

inline __m512bh SetPair(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

inline V AddPairs(V sums, __m512bh a, __m512bh b) { return {_mm512_dpbf16_ps(sums.v, a, b)}; }

void PackPairQueries(const AttentionTile& tile, const Panel& panel) {
  const float factor = tile.scale * kLog2e;
  float row[32];
  uint16_t narrow[32];
  for (int r = 0; r < panel.vectors * V::kLanes; ++r) {
    const int in_tile = panel.index * kPanel + r;
    const int64_t at = tile.first_row + in_tile;
    const float* q = tile.queries + at / tile.group * tile.query_stride + at % tile.group * tile.head_dim;
    for (int64_t c = 0; c < panel.dim; c += 32) {
      for (int64_t i = 0; i < 32; ++i)
        row[i] = in_tile < tile.rows && c + i < tile.head_dim ? q[c + i] * factor : 0.0f;
      ToBf16Row(row, 32, narrow);
      for (int64_t i = 0; i < 16; ++i)
        __builtin_memcpy(panel.queries + (c / 2 + i) * kPanel + r, narrow + 2 * i, sizeof *panel.queries);
    }
  }
}

// scores[j][lane] = start[j] + sum_c keys[j][c] queries[c][lane], eight keys at a time; tops[lane] = max_j
// scores[j][lane].
template <int kVectors>
void ScorePairs(const CacheRows& keys, int64_t dim, const uint32_t* queries, const float* start,
                float* scores, float* tops) {
  constexpr int kKeys = 8;
  for (int v = 0; v < kVectors; ++v) V::Set(kMinusInfinity).Store(tops + v * V::kLanes);
  for (int64_t j = 0; j < kKeyTile; j += kKeys) {
    const std::byte* k = keys.first + j * keys.stride;
    // Prefetches the same keys of the next tile. Other heads lie between the rows, so they are too far apart
    // for the hardware prefetcher.
    for (int64_t i = 0; i < kKeys; ++i) {
      for (int64_t b = 0; b < 2 * dim; b += 64) __builtin_prefetch(k + (kKeyTile + i) * keys.stride + b);
    }
    V sums[kKeys][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Set(start[j + i]);
    }
    for (int64_t c = 0; c < dim / 2; ++c) {
      __m512bh q[kVectors];
      for (int v = 0; v < kVectors; ++v) q[v] = LoadPairs(queries + c * kPanel + v * V::kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) {
        const __m512bh key = SetPair(k + i * keys.stride + 4 * c);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = AddPairs(sums[i][v], key, q[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      V top = V::Load(tops + v * V::kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) {
        sums[i][v].Store(scores + (j + i) * kPanel + v * V::kLanes);
        top = V::Max(sums[i][v], top);
      }
      top.Store(tops + v * V::kLanes);
    }
  }
}

// output[c][lane] += sum_j values[j][c] weights[j][lane], eight columns at a time.
template <int kVectors>
void ValuePairs(const uint32_t* values, int64_t dim, const uint32_t* weights, float* output) {
  constexpr int kColumns = 8;
  for (int64_t c = 0; c < dim; c += kColumns) {
    V sums[kColumns][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Load(output + (c + i) * kPanel + v * V::kLanes);
    }
    for (int64_t j = 0; j < kKeyTile / 2; ++j) {
      __m512bh p[kVectors];
      for (int v = 0; v < kVectors; ++v) p[v] = LoadPairs(weights + j * kPanel + v * V::kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kColumns; ++i) {
        const __m512bh value = SetPair(values + j * dim + c + i);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = AddPairs(sums[i][v], value, p[v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v].Store(output + (c + i) * kPanel + v * V::kLanes);
    }
  }
}

using PairScores = void (*)(const CacheRows& keys, int64_t dim, const uint32_t* queries, const float* start,
                            float* scores, float* tops);
using PairValues = void (*)(const uint32_t* values, int64_t dim, const uint32_t* weights, float* output);

// Indexed by the number of vectors in use, minus 1.
constexpr PairScores kPairScores[kPanelVectors] = {ScorePairs<1>, ScorePairs<2>, ScorePairs<3>};
constexpr PairValues kPairValues[kPanelVectors] = {ValuePairs<1>, ValuePairs<2>, ValuePairs<3>};

void PackPairValues(const CacheRows& values, int64_t dim, uint32_t* packed) {
  const auto load = [&](int64_t j, int64_t c) {
    const std::byte* p = values.first + j * values.stride + 2 * c;
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  for (int64_t j = 0; j < kKeyTile; j += 2, packed += dim) {
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      __builtin_prefetch(values.first + (j + kKeyTile) * values.stride + 2 * c);
      __builtin_prefetch(values.first + (j + 1 + kKeyTile) * values.stride + 2 * c);
      _mm512_storeu_si512(packed + c, _mm512_or_si512(load(j, c), _mm512_slli_epi32(load(j + 1, c), 16)));
    }
  }
}

// The form of the queries is that of the keys that they meet.
inline void PackQueries(const AttentionTile& tile, const Panel& panel) {
  if (HasQuadKeys(tile)) return PackQuadQueries(tile, panel);
  if (HasWordKeys(tile)) return PackWordQueries(tile, panel);
  PackPairQueries(tile, panel);
}

constexpr float kNoStart[kKeyTile] = {};

// Computes the scores of a panel with the key tile at `begin`, with start[j] added, and their maxima.
// `rows_of_keys` are the tile's keys in bf16, if it has no codes.
inline void ScorePanelPairs(const AttentionTile& tile, const Rows& rows, const Panel& panel,
                            const PairBuffers& buffers, const CacheRows& rows_of_keys, const float* start,
                            int64_t begin, int64_t end) {
  if (HasQuadKeys(tile)) {
    const QuadKeys keys = QuadKeysAt(tile, panel.dim, begin, end);
    kQuadScores[panel.vectors - 1](keys, panel.dim, panel.queries, QueryScales(panel), start, panel.scores,
                                   buffers.tops);
  } else if (HasWordKeys(tile)) {
    const WordKeys keys = WordKeysAt(tile, panel.dim, begin, end);
    kWordScores[panel.vectors - 1](keys, panel.dim, panel.queries, WordQueryScales(panel), start,
                                   panel.scores, buffers.tops);
  } else {
    kPairScores[panel.vectors - 1](rows_of_keys, panel.dim, panel.queries, start, panel.scores, buffers.tops);
  }
  if (NeedsNoMask(tile, rows, begin)) return;
  BiasAndMask(tile, rows, begin, end, panel.index, panel.vectors, panel.scores);
  for (int i = 0; i < panel.vectors * V::kLanes; i += V::kLanes)
    TileTop(panel.scores + i).Store(buffers.tops + i);
}

// The values of the tile at `begin` in pairs: packed, or paired here.
inline const uint32_t* PairValuesAt(const AttentionTile& tile, const Rows& rows, const PairBuffers& buffers,
                                    int64_t begin, int64_t end) {
  if (const std::byte* packed = PackedValuesAt(tile, begin)) return reinterpret_cast<const uint32_t*>(packed);
  PackPairValues(WholeRows({tile.values, tile.value_stride}, tile, begin, end, buffers.copies), rows.dim,
                 buffers.values);
  return buffers.values;
}

void PackTilePairs(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys,
                   std::byte* values) {
  const auto pack_values = [&](const CacheRows& rows, int64_t dim) {
    if (cache.int8_values) return PackQuadValues(rows, dim, values);
    PackPairValues(rows, dim, reinterpret_cast<uint32_t*>(values));
  };
  const auto pack_keys = [&](const CacheRows& rows, int64_t dim) {
    if (cache.key_bits == 8) return PackQuadKeys(rows, dim, keys);
    if (cache.key_bits == 16) return PackWordKeys(rows, dim, keys);
    PackPlainKeys(rows, dim, keys);
  };
  PackCacheTile(cache, begin, end, keys, pack_values, pack_keys);
}

// The keys of a call in order, as tiles that some row sees.
template <typename F>
inline void ForTiles(const Rows& rows, int64_t key_begin, int64_t key_end, const F& take) {
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile > rows.first_visible) take(begin);
  }
}

// The tile's keys in bf16, or none if they are codes.
inline CacheRows PairKeysAt(const AttentionTile& tile, const PairBuffers& buffers, int64_t begin,
                            int64_t end) {
  if (HasQuadKeys(tile) || HasWordKeys(tile)) return {nullptr, 0};
  return KeysAt(tile, begin, end, buffers.keys);
}

struct Panels {
  Panel of[kPanels];
  int count;  // in use
};

inline Panels PanelsOf(const AttentionTile& tile, const Rows& rows, const State& s) {
  Panels panels = {};
  for (int i = 0; i < kPanels && PanelVectors(tile, i) > 0; ++i)
    panels.of[panels.count++] = PanelOf(tile, rows, s, i);
  return panels;
}

// One panel, with packed values in 8 bits.
void AttendQuads(const AttentionTile& tile, const Rows& rows, const Panel& panel, int64_t key_begin,
                 int64_t key_end) {
  const PairBuffers buffers = BuffersOf(rows);
  for (int r = 0; r < kPanel; ++r) buffers.largest[r] = kMinusInfinity;
  ForTiles(rows, key_begin, key_end, [&](int64_t begin) {
    const QuadTile values = QuadTileAt(PackedValuesAt(tile, begin), rows.dim);
    const CacheRows keys = PairKeysAt(tile, buffers, begin, key_end);
    ScorePanelPairs(tile, rows, panel, buffers, keys, values.log2_scales, begin, key_end);
    TakeQuads(values, panel, buffers);
  });
}

// All panels, with values in pairs. Panels share a tile's keys and values, which may have to be copied.
void AttendPanelPairs(const AttentionTile& tile, const Rows& rows, const Panels& panels, int64_t key_begin,
                      int64_t key_end, bool with_values) {
  const PairBuffers buffers = BuffersOf(rows);
  ForTiles(rows, key_begin, key_end, [&](int64_t begin) {
    const CacheRows keys = PairKeysAt(tile, buffers, begin, key_end);
    const uint32_t* values = with_values ? PairValuesAt(tile, rows, buffers, begin, key_end) : nullptr;
    for (int p = 0; p < panels.count; ++p) {
      const Panel& panel = panels.of[p];
      ScorePanelPairs(tile, rows, panel, buffers, keys, kNoStart, begin, key_end);
      for (int i = 0; i < panel.vectors * V::kLanes; i += V::kLanes) {
        SoftmaxPairs(panel.scores + i, V::Load(buffers.tops + i), panel.maxima + i, panel.sums + i,
                     panel.output + i, with_values ? tile.head_dim : 0,
                     [&](int j) { return buffers.weights + i + j / 2 * kPanel; });
      }
      if (!with_values) continue;
      kPairValues[panel.vectors - 1](values, rows.dim, buffers.weights, panel.output);
    }
  });
}

void AttendPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                 float* state, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  ClearState(tile, with_values, state);
  const Panels panels = PanelsOf(tile, rows, StateAt(state));
  for (int i = 0; i < panels.count && !tile.queries_ready; ++i) PackQueries(tile, panels.of[i]);
  if (!HasQuads(tile) || !with_values) {
    return AttendPanelPairs(tile, rows, panels, key_begin, key_end, with_values);
  }
  for (int i = 0; i < panels.count; ++i) AttendQuads(tile, rows, panels.of[i], key_begin, key_end);
}

void AddMassPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state,
                  bool maximum, float* sums, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const PairBuffers buffers = BuffersOf(rows);
  const Panels panels = PanelsOf(tile, rows, StateAt(const_cast<float*>(state)));
  for (int i = 0; i < panels.count; ++i) PackQueries(tile, panels.of[i]);
  ForTiles(rows, key_begin, key_end, [&](int64_t begin) {
    const CacheRows keys = PairKeysAt(tile, buffers, begin, key_end);
    for (int i = 0; i < panels.count; ++i)
      ScorePanelPairs(tile, rows, panels.of[i], buffers, keys, kNoStart, begin, key_end);
    AddTileMass(tile, rows, state, Smaller(kKeyTile, key_end - begin), maximum,
                sums + (begin - key_begin) * kMassLanes);
  });
}
