// Flash attention over a bf16 cache with vdpbf16ps, in the rows-as-lanes form of kernel_attention.inl: S^T =
// K Q^T and O^T += V^T P^T. Factors come in pairs (of columns, then of keys), whose products are summed in
// fp32. As on AMX, queries and weights are rounded to bf16.
//
// A pair of columns of a key is one 32-bit broadcast. Queries are packed in pairs once per call, weights in
// pairs of keys once per tile. Values, and then also keys, are packed once per tile or once for all tiles of
// rows (pack): a tile took 96 cycles per 16 scores on Zen 4 from a cache with other heads between its rows,
// and takes 84 packed (docs/performance.md). vdpbf16ps treats all lanes alike and independently, so a row's
// bits depend neither on its lane nor on other rows.

static_assert(kPanels == 1 && V::kLanes == 16);

inline __m512bh LoadPairs(const void* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }

inline __m512bh SetPair(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

inline V AddPairs(V sums, __m512bh a, __m512bh b) { return {_mm512_dpbf16_ps(sums.v, a, b)}; }

void PackPairQueries(const AttentionTile& tile, const Rows& rows, uint32_t* packed) {
  const float factor = tile.scale * kLog2e;
  float row[32];
  uint16_t narrow[32];
  for (int r = 0; r < PanelVectors(tile, 0) * V::kLanes; ++r) {
    const int64_t at = tile.first_row + r;
    const float* q = tile.queries + at / tile.group * tile.query_stride + at % tile.group * tile.head_dim;
    for (int64_t c = 0; c < rows.dim; c += 32) {
      for (int64_t i = 0; i < 32; ++i)
        row[i] = r < tile.rows && c + i < tile.head_dim ? q[c + i] * factor : 0.0f;
      ToBf16Row(row, 32, narrow);
      for (int64_t i = 0; i < 16; ++i)
        __builtin_memcpy(packed + (c / 2 + i) * kPanel + r, narrow + 2 * i, sizeof *packed);
    }
  }
}

// scores[j][lane] = start[j] + sum_c keys[j][c] queries[c][lane], four keys at a time; tops[lane] = max_j
// scores[j][lane].
template <int kVectors>
void ScorePairs(const CacheRows& keys, int64_t dim, const uint32_t* queries, const float* start,
                float* scores, float* tops) {
  for (int v = 0; v < kVectors; ++v) V::Set(kMinusInfinity).Store(tops + v * V::kLanes);
  for (int64_t j = 0; j < kKeyTile; j += 4) {
    const std::byte* k = keys.first + j * keys.stride;
    // Prefetches the same keys of the next tile. Other heads lie between the rows, so they are too far apart
    // for the hardware prefetcher.
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t b = 0; b < 2 * dim; b += 64) __builtin_prefetch(k + (kKeyTile + i) * keys.stride + b);
    }
    V sums[4][kVectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Set(start[j + i]);
    }
    for (int64_t c = 0; c < dim / 2; ++c) {
      __m512bh q[kVectors];
      for (int v = 0; v < kVectors; ++v) q[v] = LoadPairs(queries + c * kPanel + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        const __m512bh key = SetPair(k + i * keys.stride + 4 * c);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = AddPairs(sums[i][v], key, q[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int i = 0; i < 4; ++i) sums[i][v].Store(scores + (j + i) * kPanel + v * V::kLanes);
      const V top = V::Max(V::Max(sums[0][v], sums[1][v]), V::Max(sums[2][v], sums[3][v]));
      V::Max(top, V::Load(tops + v * V::kLanes)).Store(tops + v * V::kLanes);
    }
  }
}

// output[c][lane] += sum_j values[j][c] weights[j][lane], four columns at a time.
template <int kVectors>
void ValuePairs(const uint32_t* values, int64_t dim, const uint32_t* weights, float* output) {
  for (int64_t c = 0; c < dim; c += 4) {
    V sums[4][kVectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Load(output + (c + i) * kPanel + v * V::kLanes);
    }
    for (int64_t j = 0; j < kKeyTile / 2; ++j) {
      __m512bh p[kVectors];
      for (int v = 0; v < kVectors; ++v) p[v] = LoadPairs(weights + j * kPanel + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        const __m512bh value = SetPair(values + j * dim + c + i);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = AddPairs(sums[i][v], value, p[v]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v].Store(output + (c + i) * kPanel + v * V::kLanes);
    }
  }
}

using PairScores = void (*)(const CacheRows& keys, int64_t dim, const uint32_t* queries, const float* start,
                            float* scores, float* tops);
using PairValues = void (*)(const uint32_t* values, int64_t dim, const uint32_t* weights, float* output);

// Indexed by the number of vectors in use, minus 1.
constexpr PairScores kPairScores[] = {ScorePairs<1>, ScorePairs<2>, ScorePairs<3>,
                                      ScorePairs<4>, ScorePairs<5>, ScorePairs<6>};
constexpr PairValues kPairValues[] = {ValuePairs<1>, ValuePairs<2>, ValuePairs<3>,
                                      ValuePairs<4>, ValuePairs<5>, ValuePairs<6>};
static_assert(sizeof kPairScores / sizeof kPairScores[0] == V::kPanelVectors);

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
inline void PackQueries(const AttentionTile& tile, const Rows& rows, uint32_t* packed) {
  if (HasQuadKeys(tile)) return PackQuadQueries(tile, rows, packed);
  PackPairQueries(tile, rows, packed);
}

constexpr float kNoStart[kKeyTile] = {};

// Computes the scores of the key tile at `begin`, in the layout of ScoreTile, with start[j] added, and their
// maxima.
inline void ScoreTilePairs(const AttentionTile& tile, const Rows& rows, const PairBuffers& buffers,
                           const float* start, int64_t begin, int64_t end) {
  const int vectors = PanelVectors(tile, 0);
  if (HasQuadKeys(tile)) {
    const QuadKeys keys = QuadKeysAt(tile, rows.dim, begin, end);
    kQuadScores[vectors - 1](keys, rows.dim, buffers.queries, QueryScales(rows, buffers.queries), start,
                             rows.scores, buffers.tops);
  } else {
    const CacheRows keys = KeysAt(tile, begin, end, buffers.keys);
    kPairScores[vectors - 1](keys, rows.dim, buffers.queries, start, rows.scores, buffers.tops);
  }
  if (NeedsNoMask(tile, rows, begin)) return;
  BiasAndMask(tile, rows, begin, end, 0, vectors, rows.scores);
  for (int i = 0; i < vectors * V::kLanes; i += V::kLanes) TileTop(rows.scores + i).Store(buffers.tops + i);
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
    if (cache.int8_keys) return PackQuadKeys(rows, dim, keys);
    PackPlainKeys(rows, dim, keys);
  };
  PackCacheTile(cache, begin, end, keys, pack_values, pack_keys);
}

void AttendPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                 float* state, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const PairBuffers buffers = BuffersOf(rows);
  const bool quads = HasQuads(tile) && with_values;
  if (!tile.queries_ready) PackQueries(tile, rows, buffers.queries);
  ClearState(tile, with_values, state);
  const State s = StateAt(state);
  const int vectors = PanelVectors(tile, 0);
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    if (quads) {
      const QuadTile values = QuadTileAt(PackedValuesAt(tile, begin), rows.dim);
      ScoreTilePairs(tile, rows, buffers, values.log2_scales, begin, key_end);
      TakeQuads(values, rows, buffers, vectors, s);
      continue;
    }
    ScoreTilePairs(tile, rows, buffers, kNoStart, begin, key_end);
    for (int i = 0; i < vectors * V::kLanes; i += V::kLanes) {
      SoftmaxPairs(rows.scores + i, V::Load(buffers.tops + i), s.maxima + i, s.sums + i, s.output + i,
                   with_values ? tile.head_dim : 0,
                   [&](int j) { return buffers.weights + i + j / 2 * kPanel; });
    }
    if (!with_values) continue;
    kPairValues[vectors - 1](PairValuesAt(tile, rows, buffers, begin, key_end), rows.dim, buffers.weights,
                             s.output);
  }
}

void AddMassPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state,
                  bool maximum, float* sums, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const PairBuffers buffers = BuffersOf(rows);
  PackQueries(tile, rows, buffers.queries);
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    ScoreTilePairs(tile, rows, buffers, kNoStart, begin, key_end);
    AddTileMass(tile, rows, state, Smaller(kKeyTile, key_end - begin), maximum,
                sums + (begin - key_begin) * kMassLanes);
  }
}
