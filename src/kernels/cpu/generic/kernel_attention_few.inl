// Attention of a few rows (tokens that come back in a decode step). The arithmetic and its order are those of
// kernel_attention.inl, so a row has the same bits here and in prefill, but the lanes differ: rows as lanes
// would leave most of a vector empty. Scores use keys as lanes (one transposition per tile), outputs use
// columns as lanes. Each element is still one chain of FMAs over c, or over j, from the same start.

constexpr int kFewRows = V::kLanes > 1 ? 8 : 0;
constexpr int kFewVectors = V::kLanes == 8 ? 2 : 4;  // with 4 rows, this fills the registers

inline bool IsFew(const AttentionTile& tile) {
  return tile.rows <= kFewRows && tile.head_dim % V::kLanes == 0;
}

// Values [c, c + kLanes) of a cache row of DType kType.
template <int kType>
inline V LoadCache(const std::byte* row, int64_t c) {
  if constexpr (kType == 0) return V::Load(reinterpret_cast<const float*>(row) + c);
  if constexpr (kType == 1) return V::LoadF16(reinterpret_cast<const uint16_t*>(row) + c);
  if constexpr (kType == 2) return V::LoadBf16(reinterpret_cast<const uint16_t*>(row) + c);
  if constexpr (kType == kQ8Cache) {
    const std::byte* block = row + c / Q8_0::kValues * Q8_0::kBytes;
    return V::Set(HalfToFloat(block)) * Codes::LoadSigned(block + 2 + c % Q8_0::kValues).ToFloat();
  }
}

// turned[c][j] = column c of key begin + j; zeros from `end` on.
template <int kType>
void TurnKeys(const AttentionTile& tile, int64_t begin, int64_t end, float* turned) {
  for (int64_t j = 0; j < kKeyTile; j += V::kLanes) {
    for (int64_t c = 0; c < tile.head_dim; c += V::kLanes) {
      V block[V::kLanes];
      for (int i = 0; i < V::kLanes; ++i) {
        const int64_t key = begin + j + i;
        block[i] = key < end ? LoadCache<kType>(tile.keys + key * tile.key_stride, c) : V::Set(0.0f);
      }
      V::Transpose(block);
      for (int i = 0; i < V::kLanes; ++i) block[i].Store(turned + (c + i) * kKeyTile + j);
    }
  }
}

// Writes scores[j][row] for kRows rows, starting with `row`.
template <int kRows>
void FewScores(const AttentionTile& tile, const float* turned, const float* queries, int row, float* scores) {
  constexpr int kStep = kFewVectors * V::kLanes;
  for (int64_t j = 0; j < kKeyTile; j += kStep) {
    V sums[kRows][kFewVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kFewVectors; ++v) sums[r][v] = V::Set(0.0f);
    }
    for (int64_t c = 0; c < tile.head_dim; ++c) {
      V keys[kFewVectors];
      for (int v = 0; v < kFewVectors; ++v) keys[v] = V::Load(turned + c * kKeyTile + j + v * V::kLanes);
      for (int r = 0; r < kRows; ++r) {
        const V q = V::Set(queries[c * kPanel + row + r]);
        for (int v = 0; v < kFewVectors; ++v) sums[r][v] = V::Fma(keys[v], q, sums[r][v]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float lanes[kStep];
      for (int v = 0; v < kFewVectors; ++v) sums[r][v].Store(lanes + v * V::kLanes);
      for (int i = 0; i < kStep; ++i) scores[(j + i) * kPanel + row + r] = lanes[i];
    }
  }
}

// output[row][c] += sum_j weights[j][row] values[j][c] for kRows rows and kVectors vectors of columns.
template <int kType, int kRows, int kVectors>
void FewValues(const AttentionTile& tile, int64_t begin, int64_t count, const float* weights, int64_t column,
               float* output, int64_t dim) {
  V sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Load(output + r * dim + column + v * V::kLanes);
  }
  for (int64_t j = 0; j < count; ++j) {
    V values[kVectors];
    const std::byte* row = tile.values + (begin + j) * tile.value_stride;
    for (int v = 0; v < kVectors; ++v) values[v] = LoadCache<kType>(row, column + v * V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V p = V::Set(weights[j * kPanel + r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Fma(values[v], p, sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v].Store(output + r * dim + column + v * V::kLanes);
  }
}

// One key tile for kRows rows, starting with `row`: the scores or, if `after`, the outputs.
template <int kType, int kRows>
void FewBlock(const AttentionTile& tile, const Rows& rows, int64_t begin, int64_t end, int row, bool after,
              float* output) {
  if (!after) return FewScores<kRows>(tile, rows.keys, rows.queries, row, rows.scores);
  const int64_t count = Smaller(kKeyTile, end - begin);
  const float* weights = rows.scores + row;
  int64_t c = 0;
  for (; c + kFewVectors * V::kLanes <= tile.head_dim; c += kFewVectors * V::kLanes) {
    FewValues<kType, kRows, kFewVectors>(tile, begin, count, weights, c, output + row * rows.dim, rows.dim);
  }
  for (; c < tile.head_dim; c += V::kLanes) {
    FewValues<kType, kRows, 1>(tile, begin, count, weights, c, output + row * rows.dim, rows.dim);
  }
}

template <int kType>
void FewBlocks(const AttentionTile& tile, const Rows& rows, int64_t begin, int64_t end, bool after,
               float* output) {
  int row = 0;
  for (; row + 4 <= tile.rows; row += 4) FewBlock<kType, 4>(tile, rows, begin, end, row, after, output);
  if (tile.rows - row == 3) FewBlock<kType, 3>(tile, rows, begin, end, row, after, output);
  if (tile.rows - row == 2) FewBlock<kType, 2>(tile, rows, begin, end, row, after, output);
  if (tile.rows - row == 1) FewBlock<kType, 1>(tile, rows, begin, end, row, after, output);
}

// Multiplies each row of a row-major output by its lane of `factor`.
inline void ScaleFewRows(const AttentionTile& tile, const Rows& rows, V factor, float* output) {
  float factors[V::kLanes];
  factor.Store(factors);
  for (int r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.head_dim; c += V::kLanes) {
      float* o = output + r * rows.dim + c;
      (V::Load(o) * V::Set(factors[r])).Store(o);
    }
  }
}

// The softmax of one vector of rows.
inline void FewSoftmax(const AttentionTile& tile, const Rows& rows, const State& s, float* output) {
  const V old = V::Load(s.maxima);
  SoftmaxVector(rows.scores, s.maxima, s.sums, s.output, 0);
  const V top = V::Load(s.maxima);
  if (!V::AllEqual(old, top)) ScaleFewRows(tile, rows, Exp2(old - Finite(top)), output);
}

template <int kType>
void AttendFewOf(const AttentionTile& tile, int64_t key_begin, int64_t key_end, float* state,
                 float* scratch) {
  const Rows rows = PackRows(tile, scratch);
  ClearState(tile, true, state);
  const State s = StateAt(state);
  float* output = rows.values;  // [kFewRows][dim]; values are read in place, so this space is free
  for (int64_t i = 0; i < kFewRows * rows.dim; ++i) output[i] = 0.0f;
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    TurnKeys<kType>(tile, begin, key_end, rows.keys);
    FewBlocks<kType>(tile, rows, begin, key_end, /*after=*/false, output);
    BiasAndMask(tile, rows, begin, key_end, 0, PanelVectors(tile, 0), rows.scores);
    FewSoftmax(tile, rows, s, output);
    FewBlocks<kType>(tile, rows, begin, key_end, /*after=*/true, output);
  }
  for (int r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.head_dim; ++c) s.output[c * kPanel + r] = output[r * rows.dim + c];
  }
}

// The entry of the kernel table; both variants give the same bits.
void AttendAny(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values, float* state,
               float* scratch) {
  if constexpr (kFewRows > 0) {
    if (with_values && IsFew(tile)) {
      if (tile.cache_type == 0) return AttendFewOf<0>(tile, key_begin, key_end, state, scratch);
      if (tile.cache_type == 1) return AttendFewOf<1>(tile, key_begin, key_end, state, scratch);
      if (tile.cache_type == kQ8Cache) return AttendFewOf<kQ8Cache>(tile, key_begin, key_end, state, scratch);
      return AttendFewOf<2>(tile, key_begin, key_end, state, scratch);
    }
  }
  Attend(tile, key_begin, key_end, with_values, state, scratch);
}
