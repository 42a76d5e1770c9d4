// Flash attention with rows as lanes, in fp32: S^T = K Q^T, then O^T += V^T P^T. In both products the left
// side is read one value at a time from rows of keys (or values) as stored, and the right side is in panels
// of kPanel rows. So keys and values need no transposition, only one conversion to fp32 per tile, which all
// panels read.

// The kernels' form of a tile of queries. All arrays are in the caller's scratch.
struct Rows {
  float* queries;  // [panel][head_dim][kPanel], scaled by scale * log2(e); 0 in unused lanes
  float* keys;     // [kKeyTile][padded head_dim] fp32
  float* values;   // the same
  float* scores;   // [panel][kKeyTile][kPanel]
  float* begin;  // [kAttentionRows] visible keys as floats, exact below 2^24; an empty range in unused lanes
  float* end;
  float* position;
  float* slope;           // times log2(e)
  float* more;  // [kKeyTile * kAttentionRows] scratch for ISA-specific kernels
  int64_t dim;  // padded head_dim: the stride of keys and values
  int64_t first_visible;  // over all rows
  int64_t last_visible;
  int64_t all_begin;  // keys [all_begin, all_end) are visible to every row
  int64_t all_end;
};

inline void PackLimits(const AttentionTile& tile, Rows* rows) {
  rows->first_visible = rows->all_end = INT32_MAX;
  rows->last_visible = rows->all_begin = 0;
  for (int r = 0; r < kAttentionRows; ++r) {
    rows->begin[r] = rows->end[r] = rows->position[r] = rows->slope[r] = 0.0f;
    if (r >= tile.rows) continue;
    const int64_t query = (tile.first_row + r) / tile.group;
    const int32_t begin = tile.visible_begin[query];
    const int32_t end = tile.visible_end[query];
    rows->begin[r] = static_cast<float>(begin);
    rows->end[r] = static_cast<float>(end);
    rows->position[r] = static_cast<float>(tile.query_positions[query]);
    if (tile.slopes != nullptr) rows->slope[r] = tile.slopes[(tile.first_row + r) % tile.group] * kLog2e;
    rows->first_visible = Smaller(rows->first_visible, begin);
    rows->last_visible = Larger(rows->last_visible, end);
    rows->all_begin = Larger(rows->all_begin, begin);
    rows->all_end = Smaller(rows->all_end, end);
  }
}

inline Rows LayOutRows(const AttentionTile& tile, float* scratch) {
  Rows rows = {};
  rows.dim = PaddedDim(tile.head_dim);
  rows.queries = scratch;
  rows.keys = rows.queries + kAttentionRows * rows.dim;
  rows.values = rows.keys + kKeyTile * rows.dim;
  rows.scores = rows.values + kKeyTile * rows.dim;
  rows.begin = rows.scores + kKeyTile * kAttentionRows;
  rows.end = rows.begin + kAttentionRows;
  rows.position = rows.end + kAttentionRows;
  rows.slope = rows.position + kAttentionRows;
  rows.more = rows.slope + kAttentionRows;
  PackLimits(tile, &rows);
  return rows;
}

inline Rows PackRows(const AttentionTile& tile, float* scratch) {
  const Rows rows = LayOutRows(tile, scratch);
  const float factor = tile.scale * kLog2e;
  for (int r = 0; r < kAttentionRows; ++r) {
    float* q = rows.queries + r / kPanel * kPanel * rows.dim + r % kPanel;
    if (PanelVectors(tile, r / kPanel) == 0) break;
    const int64_t row = tile.first_row + r;
    const float* in = tile.queries + row / tile.group * tile.query_stride + row % tile.group * tile.head_dim;
    for (int64_t c = 0; c < tile.head_dim; ++c) q[c * kPanel] = r < tile.rows ? in[c] * factor : 0.0f;
  }
  return rows;
}

// Rows [begin, begin + kKeyTile) of keys or values in fp32; rows from `end` on are zeros.
inline void WidenTile(const std::byte* rows, int64_t stride, const AttentionTile& tile, int64_t begin,
                      int64_t end, float* y) {
  const int64_t dim = PaddedDim(tile.head_dim);
  for (int64_t j = 0; j < kKeyTile; ++j, y += dim) {
    int64_t c = 0;
    if (begin + j < end) {
      const std::byte* row = rows + (begin + j) * stride;
      // Prefetches the same row of the next tile. Other heads lie between the rows, so they are too far apart
      // for the hardware prefetcher.
      for (int64_t b = 0; b < 2 * tile.head_dim; b += 64) __builtin_prefetch(row + kKeyTile * stride + b);
      if (tile.cache_type == 0) CopyF32(row, tile.head_dim, y);
      if (tile.cache_type == 1) WidenF16(row, tile.head_dim, y);
      if (tile.cache_type == 2) WidenBf16(row, tile.head_dim, y);
      if (tile.cache_type == kQ8Cache) DequantizeBlocks<Q8_0>(row, tile.head_dim, y);
      c = tile.head_dim;
    }
    for (; c < dim; ++c) y[c] = 0.0f;
  }
}

// scores[j][lane] = sum_c keys[j][c] queries[c][lane], four keys at a time.
template <int kVectors>
void ScorePanel(const float* keys, int64_t dim, int64_t head_dim, const float* queries, float* scores) {
  for (int64_t j = 0; j < kKeyTile; j += 4) {
    V sums[4][kVectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Set(0.0f);
    }
    const float* k = keys + j * dim;
    for (int64_t c = 0; c < head_dim; ++c) {
      V q[kVectors];
      for (int v = 0; v < kVectors; ++v) q[v] = V::Load(queries + c * kPanel + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        const V key = V::Set(k[i * dim + c]);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Fma(key, q[v], sums[i][v]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v].Store(scores + (j + i) * kPanel + v * V::kLanes);
    }
  }
}

// output[c][lane] += sum_j values[j][c] weights[j][lane], four columns at a time; columns beyond head_dim are
// zeros.
template <int kVectors>
void ValuePanel(const float* values, int64_t dim, int64_t head_dim, const float* weights, float* output) {
  for (int64_t c = 0; c < head_dim; c += 4) {
    V sums[4][kVectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Load(output + (c + i) * kPanel + v * V::kLanes);
    }
    const float* column = values + c;
    for (int64_t j = 0; j < kKeyTile; ++j) {
      V p[kVectors];
      for (int v = 0; v < kVectors; ++v) p[v] = V::Load(weights + j * kPanel + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        const V value = V::Set(column[j * dim + i]);
        for (int v = 0; v < kVectors; ++v) sums[i][v] = V::Fma(value, p[v], sums[i][v]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v].Store(output + (c + i) * kPanel + v * V::kLanes);
    }
  }
}

using PanelProduct = void (*)(const float* left, int64_t dim, int64_t head_dim, const float* right,
                              float* sums);

// The product for a panel with `vectors` vectors in use. The arithmetic of these does not depend on their
// number.
template <int kVectors>
PanelProduct ScoreProduct(int vectors) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return ScoreProduct<kVectors - 1>(vectors);
  }
  return ScorePanel<kVectors>;
}

template <int kVectors>
PanelProduct ValueProduct(int vectors) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return ValueProduct<kVectors - 1>(vectors);
  }
  return ValuePanel<kVectors>;
}

// Adds ALiBi, and sets scores of keys that a row does not see to -infinity. Tiles that need neither skip
// this.
inline void BiasAndMask(const AttentionTile& tile, const Rows& rows, int64_t begin, int64_t end, int panel,
                        int vectors, float* scores) {
  for (int v = 0; v < vectors; ++v) {
    const int64_t row = panel * kPanel + v * V::kLanes;
    const V low = V::Load(rows.begin + row);
    const V high = V::Load(rows.end + row);
    const V position = V::Load(rows.position + row);
    const V slope = V::Load(rows.slope + row);
    for (int64_t j = 0; j < kKeyTile; ++j) {
      float* at = scores + j * kPanel + v * V::kLanes;
      V s = V::Load(at);
      if (tile.slopes != nullptr && begin + j < end) {
        const V key = V::Set(static_cast<float>(tile.key_positions[begin + j]));
        s = V::Fma(slope, key - position, s);
      }
      V::SelectInRange(V::Set(static_cast<float>(begin + j)), low, high, s, V::Set(kMinusInfinity)).Store(at);
    }
  }
}

inline bool NeedsNoMask(const AttentionTile& tile, const Rows& rows, int64_t begin) {
  return tile.slopes == nullptr && rows.all_begin <= begin && begin + kKeyTile <= rows.all_end &&
         tile.rows % V::kLanes == 0;  // lanes without a row see no key
}

// Computes the scores of the key tile at `begin` for all panels.
inline void ScoreTile(const AttentionTile& tile, const Rows& rows, int64_t begin, int64_t end) {
  WidenTile(tile.keys, tile.key_stride, tile, begin, end, rows.keys);
  const bool plain = NeedsNoMask(tile, rows, begin);
  for (int panel = 0; panel < kPanels; ++panel) {
    const int vectors = PanelVectors(tile, panel);
    if (vectors == 0) break;
    float* scores = rows.scores + panel * kPanel * kKeyTile;
    ScoreProduct<kPanelVectors>(vectors)(rows.keys, rows.dim, tile.head_dim,
                                            rows.queries + panel * kPanel * rows.dim, scores);
    if (!plain) BiasAndMask(tile, rows, begin, end, panel, vectors, scores);
  }
}

void Attend(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values, float* state,
            float* scratch) {
  const Rows rows = PackRows(tile, scratch);
  ClearState(tile, with_values, state);
  const State s = StateAt(state);
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    ScoreTile(tile, rows, begin, key_end);
    if (with_values) WidenTile(tile.values, tile.value_stride, tile, begin, key_end, rows.values);
    for (int panel = 0; panel < kPanels; ++panel) {
      const int vectors = PanelVectors(tile, panel);
      if (vectors == 0) break;
      float* scores = rows.scores + panel * kPanel * kKeyTile;
      float* output = s.output + panel * kPanel * rows.dim;
      for (int v = 0; v < vectors; ++v) {
        const int64_t row = panel * kPanel + v * V::kLanes;
        SoftmaxVector(scores + v * V::kLanes, s.maxima + row, s.sums + row, output + v * V::kLanes,
                      with_values ? tile.head_dim : 0);
      }
      if (with_values) {
        ValueProduct<kPanelVectors>(vectors)(rows.values, rows.dim, tile.head_dim, scores, output);
      }
    }
  }
}

// Adds the weights of `count` keys, whose scores are in `rows`, to the keys' sums or maxima.
inline void AddTileMass(const AttentionTile& tile, const Rows& rows, const float* state, int64_t count,
                        bool maximum, float* sums) {
  const State s = StateAt(const_cast<float*>(state));
  for (int panel = 0; panel < kPanels; ++panel) {
    for (int v = 0; v < PanelVectors(tile, panel); ++v) {
      const int64_t row = panel * kPanel + v * V::kLanes;
      const V base = Finite(V::Load(s.maxima + row));
      const V total = V::Load(s.sums + row);
      // The sum is 0 only if no key has weight.
      const V inverse = V::Set(1.0f) / V::Max(V::Set(1e-30f), total);
      for (int64_t j = 0; j < count; ++j) {
        const V p = Exp2(V::Load(rows.scores + (panel * kKeyTile + j) * kPanel + v * V::kLanes) - base);
        float* sum = sums + j * kMassLanes;
        const V before = V::Load(sum);
        (maximum ? V::Max(p * inverse, before) : V::Fma(p, inverse, before)).Store(sum);
      }
    }
  }
}

void AddMass(const AttentionTile& tile, int64_t key_begin, int64_t key_end, const float* state, bool maximum,
             float* sums, float* scratch) {
  const Rows rows = PackRows(tile, scratch);
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    ScoreTile(tile, rows, begin, key_end);
    AddTileMass(tile, rows, state, Smaller(kKeyTile, key_end - begin), maximum,
                sums + (begin - key_begin) * kMassLanes);
  }
}
