// Attention of one query over a cache in place, with its own order of summation. A decode step has far fewer
// rows than the tiles of kernel_attention.inl, and its limit is the rate of reading the cache.
//
// Keys come in pieces. A piece is read in two passes, its keys and then its values, and all kv heads of a row
// before the next row, so that a thread reads one stream after another:
//   s_j = q . k_j     m = max_j s_j     p_j = 2^(s_j - m)     l = sum_j p_j     o = sum_j p_j v_j
// FinishDecode merges the pieces in order. The weights are computed while the values load, which hides their
// cost. No head depends on the other heads of the call.

inline int64_t DecodeRow(const DecodeHeads& heads, int64_t j) {
  return heads.rows == nullptr ? j : heads.rows[j];
}

// The addresses of the kDecodeTile keys (or values) from `begin` on. From `end` on it repeats the last one,
// whose weight is later 0.
inline void FindDecodeRows(const DecodeHeads& heads, bool values, int64_t begin, int64_t end,
                           const std::byte** rows) {
  const std::byte* first = values ? heads.values : heads.keys;
  const int64_t stride = values ? heads.value_stride : heads.key_stride;
  if (heads.rows == nullptr && begin + kDecodeTile <= end) {
    for (int i = 0; i < kDecodeTile; ++i) rows[i] = first + (begin + i) * stride;
    return;
  }
  for (int i = 0; i < kDecodeTile; ++i)
    rows[i] = first + DecodeRow(heads, Smaller(begin + i, end - 1)) * stride;
}

// The tile at `begin`, and the tile to read after it.
struct DecodeTile {
  const std::byte* rows[kDecodeTile];
  const std::byte* next[kDecodeTile];
};

inline DecodeTile DecodeTileAt(const DecodeHeads& heads, bool values, int64_t piece, int64_t begin,
                               int64_t end) {
  DecodeTile tile;
  FindDecodeRows(heads, values, begin, end, tile.rows);
  const bool more = begin + kDecodeTile < end;
  // The values of a piece follow its keys.
  FindDecodeRows(heads, values || !more, more ? begin + kDecodeTile : values ? begin : piece, end, tile.next);
  return tile;
}

// Prefetches one kv head's share of the rows, with all lines of a row in memory order, whichever head they
// belong to. The target is the L2 cache: L1 tracks too few outstanding lines to keep the memory busy (16k
// keys of 8 x 64 in bf16 on a Zen 4: 2.4 ms, against 4.6 ms into L1 and 5.2 ms without prefetching).
inline void PrefetchDecode(const DecodeHeads& heads, const std::byte* const* rows, int kv_head) {
  constexpr int kSecondLevel = 2;
  const int64_t bytes = heads.head_bytes * heads.kv_heads;
  const int end = (kv_head + 1) * kDecodeTile / heads.kv_heads;
  for (int i = kv_head * kDecodeTile / heads.kv_heads; i < end; ++i) {
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(rows[i] + b, 0, kSecondLevel);
  }
}

// Prefetches the first rows of a piece, which no earlier tile has requested.
inline void PrefetchFirstDecode(const DecodeHeads& heads, int64_t begin, int64_t end) {
  const std::byte* rows[kDecodeTile];
  FindDecodeRows(heads, /*values=*/false, begin, end, rows);
  for (int g = 0; g < heads.kv_heads; ++g) PrefetchDecode(heads, rows, g);
}

// A head's state: its output, then maximum and sum.
struct DecodeState {
  float* output;
  float* maximum;
  float* sum;
};

inline DecodeState DecodeStateAt(float* states, int64_t head, int64_t head_dim) {
  float* state = states + head * DecodeStateFloats(head_dim);
  return {state, state + PaddedDim(head_dim), state + PaddedDim(head_dim) + 1};
}

// Keys whose sums are in registers at the same time. With vectors of one lane, several sums are needed to
// hide the latency of an FMA.
constexpr int kDecodeSums = V::kLanes > 1 ? V::kLanes : 8;

// scores[i] = the sum over the lanes of sums[i].
template <int kSums>
inline void StoreDecodeSums(V (&sums)[kSums], float* scores) {
  if constexpr (kSums == V::kLanes) {
    V::Transpose(sums);
    for (int half = kSums / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    }
    sums[0].Store(scores);
  } else {
    for (int i = 0; i < kSums; ++i) sums[i].Store(scores + i);
  }
}

// scores[i] = keys[i] . query.
inline void ScoreDecodeTile(const float* const* keys, const float* query, int64_t dim, float* scores) {
  for (int j = 0; j < kDecodeTile; j += kDecodeSums) {
    V sums[kDecodeSums];
    for (int i = 0; i < kDecodeSums; ++i) sums[i] = V::Set(0.0f);
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      const V q = V::Load(query + c);
      for (int i = 0; i < kDecodeSums; ++i) sums[i] = V::Fma(V::Load(keys[j + i] + c), q, sums[i]);
    }
    StoreDecodeSums(sums, scores + j);
  }
}

// outputs[r][column ...] += sum_i weights[r][i] values[i][column ...] for kRows heads. Weights are
// kDecodeKeys floats apart, outputs `out_stride`.
template <int kRows, int kVectors>
inline void AddDecodeColumns(const float* const* values, const float* weights, int64_t column, float* outputs,
                             int64_t out_stride) {
  V sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = V::Load(outputs + r * out_stride + column + v * V::kLanes);
  }
  for (int i = 0; i < kDecodeTile; ++i) {
    V value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = V::Load(values[i] + column + v * V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V p = V::Set(weights[r * kDecodeKeys + i]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Fma(value[v], p, sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v].Store(outputs + r * out_stride + column + v * V::kLanes);
  }
}

constexpr int kDecodeColumns = V::kLanes == 8 ? 2 : 4;  // vectors; with 4 heads, this fills the registers

template <int kRows>
inline void AddDecodeHeads(const float* const* values, const float* weights, int64_t dim, float* outputs,
                           int64_t out_stride) {
  int64_t c = 0;
  for (; c + kDecodeColumns * V::kLanes <= dim; c += kDecodeColumns * V::kLanes) {
    AddDecodeColumns<kRows, kDecodeColumns>(values, weights, c, outputs, out_stride);
  }
  for (; c < dim; c += V::kLanes) AddDecodeColumns<kRows, 1>(values, weights, c, outputs, out_stride);
}

// The buffers of a call, all in its scratch.
struct DecodeBuffers {
  float* queries;  // [heads][dim], scaled by scale * log2(e), zero-padded
  float* scores;   // [heads][kDecodeKeys]; later the weights
  float* rows;     // [kDecodeTile][dim]
  int64_t dim;     // head_dim, padded to whole vectors
};

inline DecodeBuffers PackDecode(const DecodeHeads& heads, float* scratch) {
  const int64_t count = int64_t{heads.kv_heads} * heads.group;
  DecodeBuffers b;
  b.dim = (heads.head_dim + V::kLanes - 1) / V::kLanes * V::kLanes;
  b.scores = scratch;
  b.queries = b.scores + count * kDecodeKeys;
  b.rows = b.queries + count * PaddedDim(heads.head_dim);
  const float factor = heads.scale * kLog2e;
  for (int64_t h = 0; h < count; ++h) {
    const float* q = heads.queries + h * heads.head_dim;
    for (int64_t c = 0; c < b.dim; ++c) b.queries[h * b.dim + c] = c < heads.head_dim ? q[c] * factor : 0.0f;
  }
  return b;
}

// The rows of one kv head in fp32, in whole vectors; in place if they already have that form.
inline void WidenDecodeTile(const DecodeHeads& heads, const DecodeTile& tile, int kv_head,
                            const DecodeBuffers& buffers, const float** rows) {
  const int64_t offset = kv_head * heads.head_bytes;
  const bool in_place = heads.cache_type == 0 && buffers.dim == heads.head_dim;
  PrefetchDecode(heads, tile.next, kv_head);
  for (int i = 0; i < kDecodeTile; ++i) {
    const std::byte* row = tile.rows[i] + offset;
    float* wide = buffers.rows + i * buffers.dim;
    rows[i] = in_place ? reinterpret_cast<const float*>(row) : wide;
    if (in_place) continue;
    if (heads.cache_type == 0) CopyF32(row, heads.head_dim, wide);
    if (heads.cache_type == 1) WidenF16(row, heads.head_dim, wide);
    if (heads.cache_type == 2) WidenBf16(row, heads.head_dim, wide);
    if (heads.cache_type == kQ8Cache) DequantizeBlocks<Q8_0>(row, heads.head_dim, wide);
    for (int64_t c = heads.head_dim; c < buffers.dim; ++c) wide[c] = 0.0f;
  }
}

// The largest of a head's scores for keys [begin, end), after adding ALiBi. Pads the scores to a whole tile
// with -infinity.
inline float DecodeMaximum(const DecodeHeads& heads, int64_t head, int64_t begin, int64_t end,
                           float* scores) {
  const int64_t count = end - begin;
  if (heads.slopes != nullptr) {
    const float slope = heads.slopes[head] * kLog2e;
    for (int64_t j = 0; j < count; ++j) {
      scores[j] +=
          slope * static_cast<float>(heads.key_positions[DecodeRow(heads, begin + j)] - heads.position);
    }
  }
  int64_t j = count;
  for (; j % kDecodeTile != 0; ++j) scores[j] = kMinusInfinity;
  V top = V::Set(kMinusInfinity);
  for (int64_t i = 0; i < j; i += V::kLanes) top = V::Max(V::Load(scores + i), top);
  float lanes[V::kLanes];
  Finite(top).Store(lanes);
  float maximum = lanes[0];
  for (int i = 1; i < V::kLanes; ++i) maximum = lanes[i] > maximum ? lanes[i] : maximum;
  return maximum;
}

// Turns the scores of a tile into weights. `sums` [kDecodeTile] adds them up by place in the tile.
inline void WeighDecodeTile(float maximum, float* scores, float* sums) {
  const V base = V::Set(maximum);
  for (int i = 0; i < kDecodeTile; i += V::kLanes) {
    const V p = Exp2(V::Load(scores + i) - base);
    p.Store(scores + i);
    (V::Load(sums + i) + p).Store(sums + i);
  }
}

// Adds the tile's values for the query heads of one kv head.
inline void AddDecodeTile(const DecodeHeads& heads, const float* const* values, const float* weights,
                          int64_t dim, float* states) {
  const int64_t stride = DecodeStateFloats(heads.head_dim);
  int r = 0;
  for (; r + 4 <= heads.group; r += 4)
    AddDecodeHeads<4>(values, weights + r * kDecodeKeys, dim, states + r * stride, stride);
  weights += r * kDecodeKeys;
  states += r * stride;
  if (heads.group - r == 3) AddDecodeHeads<3>(values, weights, dim, states, stride);
  if (heads.group - r == 2) AddDecodeHeads<2>(values, weights, dim, states, stride);
  if (heads.group - r == 1) AddDecodeHeads<1>(values, weights, dim, states, stride);
}

void AttendDecode(const DecodeHeads& heads, int64_t begin, int64_t end, float* states, float* scratch) {
  PrefetchFirstDecode(heads, begin, end);
  const DecodeBuffers buffers = PackDecode(heads, scratch);
  const int64_t count = int64_t{heads.kv_heads} * heads.group;
  const float* rows[kDecodeTile];
  for (int64_t j = begin; j < end; j += kDecodeTile) {
    const DecodeTile tile = DecodeTileAt(heads, /*values=*/false, begin, j, end);
    for (int g = 0; g < heads.kv_heads; ++g) {
      WidenDecodeTile(heads, tile, g, buffers, rows);
      for (int64_t h = int64_t{g} * heads.group; h < int64_t{g + 1} * heads.group; ++h) {
        ScoreDecodeTile(rows, buffers.queries + h * buffers.dim, buffers.dim,
                        buffers.scores + h * kDecodeKeys + (j - begin));
      }
    }
  }
  float* sums = buffers.queries;  // [heads][kDecodeTile]; reuses the queries, which are no longer needed
  for (int64_t h = 0; h < count; ++h) {
    const DecodeState state = DecodeStateAt(states, h, heads.head_dim);
    *state.maximum = DecodeMaximum(heads, h, begin, end, buffers.scores + h * kDecodeKeys);
    for (int64_t c = 0; c < buffers.dim; ++c) state.output[c] = 0.0f;
    for (int i = 0; i < kDecodeTile; ++i) sums[h * kDecodeTile + i] = 0.0f;
  }
  for (int64_t j = begin; j < end; j += kDecodeTile) {
    const DecodeTile tile = DecodeTileAt(heads, /*values=*/true, begin, j, end);
    for (int g = 0; g < heads.kv_heads; ++g) {
      const int64_t first = int64_t{g} * heads.group;
      float* weights = buffers.scores + first * kDecodeKeys + (j - begin);
      for (int64_t h = first; h < first + heads.group; ++h) {
        WeighDecodeTile(*DecodeStateAt(states, h, heads.head_dim).maximum,
                        weights + (h - first) * kDecodeKeys, sums + h * kDecodeTile);
      }
      WidenDecodeTile(heads, tile, g, buffers, rows);
      AddDecodeTile(heads, rows, weights, buffers.dim, DecodeStateAt(states, first, heads.head_dim).output);
    }
  }
  for (int64_t h = 0; h < count; ++h) {
    float sum = 0.0f;
    for (int i = 0; i < kDecodeTile; ++i) sum += sums[h * kDecodeTile + i];
    *DecodeStateAt(states, h, heads.head_dim).sum = sum;
  }
}

// 2^x for one value.
inline float Exp2OfOne(float x) {
  float lanes[V::kLanes];
  Exp2(V::Set(x)).Store(lanes);
  return lanes[0];
}

// Merges a head's states of all pieces into the first of them and writes the normalised output.
void FinishDecode(float* states, int64_t pieces, int64_t stride, int64_t head_dim, const float* sink,
                  float* out) {
  const DecodeState first = DecodeStateAt(states, 0, head_dim);
  float top = -3.0e38f;  // see Finite
  for (int64_t p = 0; p < pieces; ++p) {
    const float maximum = *DecodeStateAt(states + p * stride, 0, head_dim).maximum;
    top = maximum > top ? maximum : top;
  }
  if (sink != nullptr) top = *sink * kLog2e > top ? *sink * kLog2e : top;
  float sum = 0.0f;
  for (int64_t p = 0; p < pieces; ++p) {
    const DecodeState state = DecodeStateAt(states + p * stride, 0, head_dim);
    const V factor = Exp2(V::Set(*state.maximum - top));
    float lanes[V::kLanes];
    factor.Store(lanes);
    sum += lanes[0] * *state.sum;
    for (int64_t c = 0; c < head_dim; c += V::kLanes) {
      const V piece = V::Load(state.output + c) * factor;
      (p == 0 ? piece : V::Load(first.output + c) + piece).Store(first.output + c);
    }
  }
  if (sink != nullptr) sum += Exp2OfOne(*sink * kLog2e - top);
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int64_t c = 0; c < head_dim; ++c) out[c] = pieces == 0 ? 0.0f : first.output[c] * inverse;
}
