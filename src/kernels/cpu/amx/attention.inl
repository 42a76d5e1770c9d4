// Flash attention on AMX tiles, in the rows-as-lanes form of kernel_attention.inl: S^T = K Q^T and O^T += V^T
// P^T, with bf16 factors and fp32 sums. Keys are read directly from the cache: 16 keys are the 16 rows of a
// tile. Queries are packed in pairs once per call, weights once per tile. Values are transposed once per tile
// or, if a call has several tiles of rows, once for all of them (pack).
//
// 2 x 2 blocks of tiles: sums in tiles 0 to 3, left sides in 4 and 5, right sides in 6 and 7. The softmax
// between the products is that of AVX-512, and so are the layouts of state and scores. Only the factors are
// rounded to bf16.

static_assert(kPanels == 1 && V::kLanes == 16);
constexpr int kTileBytes = 1024;
constexpr int kLaneTiles = kAttentionRows / 16;
constexpr int64_t kPanelBytes = kPanel * 4;

struct TileBuffers {
  uint16_t* queries;  // [dim / 32][kLaneTiles][16][16][2]
  uint16_t* keys;  // [kKeyTile][dim]: copies, if the cache cannot be read in whole tiles
  uint16_t* values;  // likewise
  uint16_t* columns;  // [kKeyTile / 32][dim][32]: transposed values
  uint16_t* weights;  // [kKeyTile / 32][kLaneTiles][16][16][2]
};

inline TileBuffers BuffersOf(const Rows& rows) {
  uint16_t* values = reinterpret_cast<uint16_t*>(rows.values);
  return {reinterpret_cast<uint16_t*>(rows.queries), reinterpret_cast<uint16_t*>(rows.keys), values,
          values + kKeyTile * rows.dim, reinterpret_cast<uint16_t*>(rows.more)};
}

void PackTileQueries(const AttentionTile& tile, const Rows& rows, uint16_t* packed) {
  const float factor = tile.scale * kLog2e;
  float row[32];
  uint16_t narrow[32];
  for (int r = 0; r < PanelVectors(tile, 0) * 16; ++r) {
    const int64_t at = tile.first_row + r;
    const float* q = tile.queries + at / tile.group * tile.query_stride + at % tile.group * tile.head_dim;
    for (int64_t c = 0; c < rows.dim; c += 32) {
      for (int64_t i = 0; i < 32; ++i)
        row[i] = r < tile.rows && c + i < tile.head_dim ? q[c + i] * factor : 0.0f;
      ToBf16Row(row, 32, narrow);
      uint16_t* to = packed + (c / 32 * kLaneTiles + r / 16) * (kTileBytes / 2) + r % 16 * 2;
      for (int64_t i = 0; i < 32; ++i) to[i / 2 * 32 + i % 2] = narrow[i];
    }
  }
}

// Adds the products of a block of 32 rows and 16 or 32 lanes over `depth` pairs of tiles. Left tiles are at
// left + k * left_step, with rows left_stride apart, right tiles at right + k * right_step.
template <bool kTwo>
inline void BlockProduct(const std::byte* left, int64_t left_stride, int64_t left_step, const uint16_t* right,
                         int64_t right_step, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k, left += left_step, right += right_step) {
    LoadTile<4>(left, left_stride);
    LoadTile<5>(left + 16 * left_stride, left_stride);
    LoadTile<6>(right, 64);
    if constexpr (kTwo) LoadTile<7>(right + kTileBytes / 2, 64);
    MultiplyTiles<0, 4, 6>();
    MultiplyTiles<2, 5, 6>();
    if constexpr (!kTwo) continue;
    MultiplyTiles<1, 4, 7>();
    MultiplyTiles<3, 5, 7>();
  }
}

template <bool kTwo>
inline void StoreBlock(float* sums) {
  StoreTile<0>(sums, kPanelBytes);
  StoreTile<2>(sums + 16 * kPanel, kPanelBytes);
  if constexpr (!kTwo) return;
  StoreTile<1>(sums + 16, kPanelBytes);
  StoreTile<3>(sums + 16 * kPanel + 16, kPanelBytes);
}

template <bool kTwo>
void ScoreBlock(const CacheRows& keys, int64_t dim, const uint16_t* queries, float* scores) {
  for (int64_t j = 0; j < kKeyTile; j += 32) {
    ZeroTile<0>();
    ZeroTile<1>();
    ZeroTile<2>();
    ZeroTile<3>();
    BlockProduct<kTwo>(keys.first + j * keys.stride, keys.stride, 64, queries, kLaneTiles * kTileBytes / 2,
                       dim / 32);
    StoreBlock<kTwo>(scores + j * kPanel);
  }
}

template <bool kTwo>
void ValueBlock(const uint16_t* columns, int64_t dim, const uint16_t* weights, float* output) {
  for (int64_t c = 0; c < dim; c += 32) {
    float* sums = output + c * kPanel;
    LoadTile<0>(sums, kPanelBytes);
    LoadTile<2>(sums + 16 * kPanel, kPanelBytes);
    if constexpr (kTwo) {
      LoadTile<1>(sums + 16, kPanelBytes);
      LoadTile<3>(sums + 16 * kPanel + 16, kPanelBytes);
    }
    BlockProduct<kTwo>(reinterpret_cast<const std::byte*>(columns + c * 32), 64, dim * 64, weights,
                       kLaneTiles * kTileBytes / 2, kKeyTile / 32);
    StoreBlock<kTwo>(sums);
  }
}

// columns[j / 32][c][j % 32] = values[j][c]. Two keys form a 32-bit word, and the words are transposed.
void TransposeValues(const CacheRows& values, int64_t dim, uint16_t* columns) {
  const auto load = [&](int64_t j, int64_t c) {
    const std::byte* p = values.first + j * values.stride + 2 * c;
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  for (int64_t half = 0; half < kKeyTile / 32; ++half) {
    for (int64_t c = 0; c < dim; c += 16) {
      V words[16];
      for (int i = 0; i < 16; ++i) {
        const int64_t j = 32 * half + 2 * i;
        words[i].v = _mm512_castsi512_ps(_mm512_or_si512(load(j, c), _mm512_slli_epi32(load(j + 1, c), 16)));
      }
      V::Transpose(words);
      for (int i = 0; i < 16; ++i) _mm512_storeu_ps(columns + (half * dim + c + i) * 32, words[i].v);
    }
  }
}

// The weights of keys j and j + 1 in the tiles of one vector of rows.
inline uint16_t* WeightsAt(uint16_t* tiles, int j) {
  return tiles + j / 32 * (kLaneTiles * kTileBytes / 2) + j % 32 / 2 * 32;
}

// Computes the scores of the key tile at `begin`, in the layout of ScoreTile.
void ScoreTileAmx(const AttentionTile& tile, const Rows& rows, const TileBuffers& buffers, int64_t begin,
                  int64_t end) {
  const CacheRows keys = KeysAt(tile, begin, end, buffers.keys);
  const int vectors = PanelVectors(tile, 0);
  for (int v = 0; v < vectors; v += 2) {
    const uint16_t* queries = buffers.queries + v * (kTileBytes / 2);
    (v + 1 < vectors ? ScoreBlock<true> : ScoreBlock<false>)(keys, rows.dim, queries, rows.scores + v * 16);
  }
  if (!NeedsNoMask(tile, rows, begin)) BiasAndMask(tile, rows, begin, end, 0, vectors, rows.scores);
}

// Prefetches share `part` of `parts` of the keys and values of the tile at `begin` into L2. In the cache,
// rows are a token apart, too far for the hardware prefetcher to detect a stream. Packed tiles are contiguous
// and need no prefetch.
inline void PrefetchTile(const AttentionTile& tile, int64_t begin, int part, int parts) {
  if (tile.packed_keys != nullptr) return;
  for (int64_t j = begin + kKeyTile * part / parts; j < begin + kKeyTile * (part + 1) / parts; ++j) {
    for (int64_t i = 0; i < 2 * tile.head_dim; i += kCacheLine) {
      __builtin_prefetch(tile.keys + j * tile.key_stride + i, 0, 2);
      __builtin_prefetch(tile.values + j * tile.value_stride + i, 0, 2);
    }
  }
}

// Packs a tile in the form that the products load: keys without gaps, values transposed.
void PackTileAmx(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys, std::byte* values) {
  const auto pack_values = [&](const CacheRows& rows, int64_t dim) {
    TransposeValues(rows, dim, reinterpret_cast<uint16_t*>(values));
  };
  const auto pack_keys = [&](const CacheRows& rows, int64_t dim) { PackPlainKeys(rows, dim, keys); };
  PackCacheTile(cache, begin, end, keys, pack_values, pack_keys);
}

// The transposed values of the tile at `begin`: packed, or transposed here.
inline const uint16_t* ColumnsAt(const AttentionTile& tile, const Rows& rows, const TileBuffers& buffers,
                                 int64_t begin, int64_t end) {
  if (const std::byte* packed = PackedValuesAt(tile, begin)) return reinterpret_cast<const uint16_t*>(packed);
  TransposeValues(WholeRows({tile.values, tile.value_stride}, tile, begin, end, buffers.values), rows.dim,
                  buffers.columns);
  return buffers.columns;
}

void AttendAmx(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values, float* state,
               float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const TileBuffers buffers = BuffersOf(rows);
  PackTileQueries(tile, rows, buffers.queries);
  ClearState(tile, with_values, state);
  const State s = StateAt(state);
  const int vectors = PanelVectors(tile, 0);
  const int64_t last = Smaller(key_end, rows.last_visible);
  ConfigureTiles();
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    ScoreTileAmx(tile, rows, buffers, begin, key_end);
    for (int v = 0; v < vectors; ++v) {
      float* scores = rows.scores + v * 16;
      uint16_t* weights = buffers.weights + v * (kTileBytes / 2);
      if (with_values && begin + kKeyTile < last) PrefetchTile(tile, begin + kKeyTile, v, vectors);
      SoftmaxPairs(scores, TileTop(scores), s.maxima + v * 16, s.sums + v * 16, s.output + v * 16,
                   with_values ? tile.head_dim : 0, [&](int j) { return WeightsAt(weights, j); });
    }
    if (!with_values) continue;
    const uint16_t* columns = ColumnsAt(tile, rows, buffers, begin, key_end);
    for (int v = 0; v < vectors; v += 2) {
      const uint16_t* weights = buffers.weights + v * (kTileBytes / 2);
      (v + 1 < vectors ? ValueBlock<true> : ValueBlock<false>)(columns, rows.dim, weights, s.output + v * 16);
    }
  }
  ReleaseTiles();
}

void AddMassAmx(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state,
                bool maximum, float* sums, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const TileBuffers buffers = BuffersOf(rows);
  PackTileQueries(tile, rows, buffers.queries);
  const int64_t last = Smaller(key_end, rows.last_visible);
  ConfigureTiles();
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    ScoreTileAmx(tile, rows, buffers, begin, key_end);
    AddTileMass(tile, rows, state, Smaller(kKeyTile, key_end - begin), maximum,
                sums + (begin - key_begin) * kMassLanes);
  }
  ReleaseTiles();
}
