// Attention of a few rows over a bf16 cache. The sums and their order are those of attention.inl, so a row
// has the same bits in either form; scores use keys as lanes and outputs use columns as lanes (see
// kernel_attention_few.inl). Keys are transposed as pairs of columns, and nothing is widened.

inline bool IsFewPairs(const AttentionTile& tile) { return tile.rows <= kFewRows && tile.head_dim % 32 == 0; }

// turned[c / 2][j] = columns c and c + 1 of key j of the tile.
void TurnPairs(const CacheRows& keys, int64_t dim, uint32_t* turned) {
  for (int64_t j = 0; j < kKeyTile; j += V::kLanes) {
    for (int64_t c = 0; c < dim; c += 32) {
      V block[V::kLanes];
      for (int i = 0; i < V::kLanes; ++i) {
        const std::byte* row = keys.first + (j + i) * keys.stride + 2 * c;
        __builtin_prefetch(row + kKeyTile * keys.stride);
        block[i].v = _mm512_loadu_ps(row);
      }
      V::Transpose(block);
      for (int i = 0; i < V::kLanes; ++i) _mm512_storeu_ps(turned + (c / 2 + i) * kKeyTile + j, block[i].v);
    }
  }
}

// Writes scores[j][row] for kRows rows, starting with `row`.
template <int kRows>
void FewPairScores(const AttentionTile& tile, const uint32_t* turned, const uint32_t* queries, int row,
                   float* scores) {
  constexpr int kVectors = kKeyTile / V::kLanes;
  V sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Set(0.0f);
  }
  for (int64_t c = 0; c < tile.head_dim / 2; ++c) {
    __m512bh keys[kVectors];
    for (int v = 0; v < kVectors; ++v) keys[v] = LoadPairs(turned + c * kKeyTile + v * V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const __m512bh q = SetPair(queries + c * kPanel + row + r);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = AddPairs(sums[r][v], keys[v], q);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float lanes[kKeyTile];
    for (int v = 0; v < kVectors; ++v) sums[r][v].Store(lanes + v * V::kLanes);
    for (int i = 0; i < kKeyTile; ++i) scores[i * kPanel + row + r] = lanes[i];
  }
}

// Adds sum_j weights[j][row] values[j][...] to the output, for kRows rows and kBlocks blocks of 32 columns
// from `column` on. Within a block, the output has the order that unpacking produces: the low halves of the
// four 128-bit lanes, then the high halves.
template <int kRows, int kBlocks>
void FewPairValues(const CacheRows& cache, const uint32_t* weights, int64_t column, float* output,
                   int64_t dim) {
  V sums[kRows][2 * kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v] = V::Load(output + r * dim + column + v * V::kLanes);
  }
  for (int64_t j = 0; j < kKeyTile; j += 2) {
    const std::byte* row = cache.first + j * cache.stride + 2 * column;
    __m512bh values[2 * kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      __builtin_prefetch(row + kKeyTile * cache.stride + 64 * b);
      __builtin_prefetch(row + (kKeyTile + 1) * cache.stride + 64 * b);
      const __m512i even = _mm512_loadu_si512(row + 64 * b);
      const __m512i odd = _mm512_loadu_si512(row + cache.stride + 64 * b);
      values[2 * b] = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(even, odd));
      values[2 * b + 1] = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(even, odd));
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512bh p = SetPair(weights + j / 2 * kPanel + r);
      for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v] = AddPairs(sums[r][v], values[v], p);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v].Store(output + r * dim + column + v * V::kLanes);
  }
}

// The place of column c in a row of FewPairValues' output.
inline int64_t UnpackedColumn(int64_t c) { return c / 32 * 32 + c % 8 / 4 * 16 + c % 32 / 8 * 4 + c % 4; }

// One key tile for kRows rows, starting with `row`: the scores or, if `values` is given, the outputs.
template <int kRows>
void FewPairBlock(const AttentionTile& tile, const Rows& rows, const CacheRows* values, int row,
                  float* output) {
  const PairBuffers buffers = BuffersOf(rows);
  if (values == nullptr) {
    const uint32_t* turned = reinterpret_cast<const uint32_t*>(buffers.keys);
    const uint32_t* queries = reinterpret_cast<const uint32_t*>(rows.queries);
    return FewPairScores<kRows>(tile, turned, queries, row, rows.scores);
  }
  const uint32_t* weights = buffers.weights + row;
  output += row * rows.dim;
  int64_t c = 0;
  for (; c + 64 <= tile.head_dim; c += 64) {
    FewPairValues<kRows, 2>(*values, weights, c, output, rows.dim);
  }
  if (c < tile.head_dim) FewPairValues<kRows, 1>(*values, weights, c, output, rows.dim);
}

void FewPairBlocks(const AttentionTile& tile, const Rows& rows, const CacheRows* values, float* output) {
  int row = 0;
  for (; row + 4 <= tile.rows; row += 4) FewPairBlock<4>(tile, rows, values, row, output);
  if (tile.rows - row == 3) FewPairBlock<3>(tile, rows, values, row, output);
  if (tile.rows - row == 2) FewPairBlock<2>(tile, rows, values, row, output);
  if (tile.rows - row == 1) FewPairBlock<1>(tile, rows, values, row, output);
}

// The softmax of one vector of rows, which writes weights in pairs of keys.
inline void FewPairSoftmax(const AttentionTile& tile, const Rows& rows, const State& s, float* output) {
  uint32_t* weights = BuffersOf(rows).weights;
  const V old = V::Load(s.maxima);
  SoftmaxPairs(rows.scores, TileTop(rows.scores), s.maxima, s.sums, s.output, 0,
               [&](int j) { return weights + j / 2 * kPanel; });
  const V top = V::Load(s.maxima);
  if (V::AllEqual(old, top)) return;
  ScaleFewRows(tile, rows, {NarrowExp2((old - Finite(top)).v)}, output);
}

void AttendFewPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, float* state,
                    float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const PairBuffers buffers = BuffersOf(rows);
  ClearState(tile, true, state);
  const State s = StateAt(state);
  PackPairQueries(tile, PanelOf(tile, rows, s, 0));
  uint32_t* turned = reinterpret_cast<uint32_t*>(rows.keys);  // [dim / 2][kKeyTile]
  uint16_t* key_copies = reinterpret_cast<uint16_t*>(turned + kKeyTile / 2 * rows.dim);
  float* output = rows.values;  // [kFewRows][dim]; the copies of values follow it
  for (int64_t i = 0; i < kFewRows * rows.dim; ++i) output[i] = 0.0f;
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    const CacheRows keys = WholeRows({tile.keys, tile.key_stride}, tile, begin, key_end, key_copies);
    TurnPairs(keys, rows.dim, turned);
    FewPairBlocks(tile, rows, nullptr, output);
    BiasAndMask(tile, rows, begin, key_end, 0, 1, rows.scores);
    FewPairSoftmax(tile, rows, s, output);
    const CacheRows values =
        WholeRows({tile.values, tile.value_stride}, tile, begin, key_end, buffers.copies);
    FewPairBlocks(tile, rows, &values, output);
  }
  for (int r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.head_dim; ++c) {
      s.output[c * kPanel + r] = output[r * rows.dim + UnpackedColumn(c)];
    }
  }
}

// The entry of the kernel table; both variants give the same bits. Packed tiles always use AttendPairs.
void AttendAnyPairs(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                    float* state, float* scratch) {
  if (with_values && tile.packed_keys == nullptr && IsFewPairs(tile)) {
    return AttendFewPairs(tile, key_begin, key_end, state, scratch);
  }
  AttendPairs(tile, key_begin, key_end, with_values, state, scratch);
}
