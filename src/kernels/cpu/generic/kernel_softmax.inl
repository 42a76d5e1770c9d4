// The per-row state of attention, and the online softmax over a tile of scores. Rows are lanes: a vector
// holds the scores of one key for kLanes rows. Maximum, sum and rescaling then need no reduction across
// lanes, and rows cannot influence each other.
//
// Everything is in base 2: queries are scaled once by scale * log2(e). Per row and key tile:
//   m' = max(m, max_j s_j)   a = 2^(m - m')   p_j = 2^(s_j - m')
//   l = l a + sum_j p_j      o = o a + sum_j p_j v_j
// For a tile that a row does not see, s_j = -infinity: m' = m, a = 1 exactly and p_j = 0, so l and o do not
// change.

constexpr float kLog2e = 1.44269504f;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kPanel =
    kPanelVectors * V::kLanes;  // rows whose sums one pass of the products keeps in registers
constexpr int kPanels = kAttentionRows / kPanel;
static_assert(kPanels * kPanel == kAttentionRows);

inline int64_t PaddedDim(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }
inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The layout of a state: maxima [rows], sums [rows], output [panel][head_dim][kPanel].
struct State {
  float* maxima;
  float* sums;
  float* output;
};

inline State StateAt(float* p) { return {p, p + kAttentionRows, p + 2 * kAttentionRows}; }

// The number of vectors of rows in use in one panel.
inline int PanelVectors(const AttentionTile& tile, int panel) {
  const int64_t rows = Smaller(tile.rows - panel * kPanel, kPanel);
  return rows <= 0 ? 0 : static_cast<int>((rows + V::kLanes - 1) / V::kLanes);
}

void ClearState(const AttentionTile& tile, bool with_values, float* state) {
  const State s = StateAt(state);
  for (int r = 0; r < kAttentionRows; ++r) s.maxima[r] = kMinusInfinity;
  for (int r = 0; r < kAttentionRows; ++r) s.sums[r] = 0.0f;
  if (!with_values) return;
  const int64_t floats = PaddedDim(tile.head_dim) * kAttentionRows;
  for (int64_t i = 0; i < floats; ++i) s.output[i] = 0.0f;
}

// A maximum that is safe to subtract: if no key has been seen, -infinity - -infinity would be NaN.
inline V Finite(V maximum) { return V::Max(maximum, V::Set(-3.0e38f)); }

// Turns one vector of rows of a tile of scores [kKeyTile][kPanel] into weights. `output` [head_dim][kPanel]
// starts at the vector's first element.
inline void SoftmaxVector(float* scores, float* maximum, float* sum, float* output, int64_t dim) {
  const V old = V::Load(maximum);
  V top = old;
  for (int j = 0; j < kKeyTile; ++j) top = V::Max(V::Load(scores + j * kPanel), top);
  const V base = Finite(top);
  V total = V::Set(0.0f);
  for (int j = 0; j < kKeyTile; ++j) {
    const V p = Exp2(V::Load(scores + j * kPanel) - base);
    p.Store(scores + j * kPanel);
    total = total + p;
  }
  top.Store(maximum);
  if (V::AllEqual(old, top)) {  // all factors are exactly 1
    (V::Load(sum) + total).Store(sum);
    return;
  }
  const V factor = Exp2(old - base);
  V::Fma(V::Load(sum), factor, total).Store(sum);
  for (int64_t c = 0; c < dim; ++c) (V::Load(output + c * kPanel) * factor).Store(output + c * kPanel);
}

void MergeStates(const AttentionTile& tile, bool with_values, const float* later, float* into) {
  const State a = StateAt(into);
  const State b = StateAt(const_cast<float*>(later));
  for (int panel = 0; panel < kPanels; ++panel) {
    for (int v = 0; v < PanelVectors(tile, panel); ++v) {
      const int64_t row = panel * kPanel + v * V::kLanes;
      const V top = V::Max(V::Load(a.maxima + row), V::Load(b.maxima + row));
      const V keep = Exp2(V::Load(a.maxima + row) - Finite(top));
      const V take = Exp2(V::Load(b.maxima + row) - Finite(top));
      top.Store(a.maxima + row);
      V::Fma(V::Load(b.sums + row), take, V::Load(a.sums + row) * keep).Store(a.sums + row);
      if (!with_values) continue;
      const int64_t first = panel * kPanel * PaddedDim(tile.head_dim) + v * V::kLanes;
      for (int64_t c = 0; c < tile.head_dim; ++c) {
        float* o = a.output + first + c * kPanel;
        V::Fma(V::Load(b.output + first + c * kPanel), take, V::Load(o) * keep).Store(o);
      }
    }
  }
}

// Where the heads of `count` rows of a tile from `first` on begin in an array of `stride` floats per query.
// Only the first one costs a division.
inline void FindHeads(const AttentionTile& tile, int first, int count, int64_t stride, int64_t* heads) {
  int64_t query = (tile.first_row + first) / tile.group;
  int64_t head = (tile.first_row + first) % tile.group;
  for (int i = 0; i < count; ++i) {
    heads[i] = query * stride + head * tile.head_dim;
    if (++head < tile.group) continue;
    head = 0;
    ++query;
  }
}

// 1 / sum, or 0 for a row that has seen no key: its sum of 0 counts as infinite. Sums of weights are larger
// than `least`, which is no denormal, so that threads that take those for 0 compute the same.
inline V InverseOf(V sum) {
  const V least = V::Set(__FLT_MIN__);
  return V::Set(1.0f) / V::SelectInRange(sum, V::Set(0.0f), least, V::Set(-kMinusInfinity), sum);
}

void FinishRows(const AttentionTile& tile, const float* state, float* out, int64_t out_stride) {
  const State s = StateAt(const_cast<float*>(state));
  for (int r = 0; r < tile.rows; r += V::kLanes) {
    const int count = static_cast<int>(Smaller(tile.rows - r, V::kLanes));
    int64_t heads[V::kLanes];
    FindHeads(tile, r, count, out_stride, heads);
    const V inverse = InverseOf(V::Load(s.sums + r));
    const float* sums = s.output + r / kPanel * kPanel * PaddedDim(tile.head_dim) + r % kPanel;
    for (int64_t c = 0; c < tile.head_dim; c += V::kLanes) {
      // Adding 0 turns -0 into +0: an underflow can leave -0 in one order of tiles and not in another.
      V x[V::kLanes];
      for (int i = 0; i < V::kLanes; ++i) x[i] = V::Load(sums + (c + i) * kPanel) * inverse + V::Set(0.0f);
      V::Transpose(x);
      // Unrolled, because an array with an index that varies would pass through memory.
      const int64_t left = tile.head_dim - c;
#pragma GCC unroll 16
      for (int i = 0; i < V::kLanes; ++i) {
        if (i >= count) break;
        if (left >= V::kLanes) {
          x[i].Store(out + heads[i] + c);
        } else {
          StorePart(x[i], out + heads[i] + c, left);
        }
      }
    }
  }
}

// The softmax of one row, keys as lanes. Positions beyond the end are -infinity, which has weight 0.
void SoftmaxRow(float* x, int64_t count) {
  V top = V::Set(kMinusInfinity);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) top = V::Max(V::Load(x + i), top);
  float lanes[V::kLanes];
  top.Store(lanes);
  float maximum = -3.0e38f;  // see Finite
  for (int lane = 0; lane < V::kLanes; ++lane) maximum = lanes[lane] > maximum ? lanes[lane] : maximum;
  for (; i < count; ++i) maximum = x[i] > maximum ? x[i] : maximum;

  const V base = V::Set(maximum);
  const V log2e = V::Set(kLog2e);
  V total = V::Set(0.0f);
  for (i = 0; i + V::kLanes <= count; i += V::kLanes) {
    const V p = Exp2((V::Load(x + i) - base) * log2e);
    p.Store(x + i);
    total = total + p;
  }
  if (i < count) {
    for (int lane = 0; lane < V::kLanes; ++lane)
      lanes[lane] = i + lane < count ? x[i + lane] : kMinusInfinity;
    const V p = Exp2((V::Load(lanes) - base) * log2e);
    StorePart(p, x + i, count - i);
    total = total + p;
  }
  const float sum = total.Sum();
  const V inverse = V::Set(sum == 0.0f ? 0.0f : 1.0f / sum);
  for (i = 0; i + V::kLanes <= count; i += V::kLanes) (V::Load(x + i) * inverse).Store(x + i);
  if (i < count) StorePart(LoadPart(x + i, count - i) * inverse, x + i, count - i);
}
