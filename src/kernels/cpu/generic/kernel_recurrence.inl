// The recurrence and the convolution of layers with a state (kernels/recurrence.h has the equations).
//
// A row of the gated delta rule needs S^T k before it can change S. The pass that changes S therefore also
// sums the next row's S^T k, and S is read and written once per row. q and k get their lengths as factors of
// these sums. The sum of a column goes over the keys in order, whatever the block or the number of rows.

// log(1 + e^x) = max(x, 0) + log(1 + u) with u = e^-|x|, and log(1 + u) = 2 atanh(s) with s = u / (2 + u).
// The coefficients interpolate (atanh(s) / s - 1) / s^2 at four Chebyshev nodes of s^2 in [0, 1/9], with a
// relative error of 2e-8 before rounding.
inline V SoftplusOf(V x) {
  const V zero = V::Set(0.0f);
  const V u = Exp(V::Min(zero - x, x));
  const V s = u / (V::Set(2.0f) + u);
  const V z = s * s;
  V p = V::Set(1.342574903e-1f);
  p = V::Fma(p, z, V::Set(1.411830990e-1f));
  p = V::Fma(p, z, V::Set(2.000378032e-1f));
  p = V::Fma(p, z, V::Set(3.333332017e-1f));
  p = V::Fma(p, z, V::Set(1.0f));
  return V::Fma(s + s, p, V::Max(zero, x));
}

void GatesOfRow(const float* step, const float* beta, const float* rate, const float* bias, int64_t heads,
                RecurrenceGates to) {
  const V one = V::Set(1.0f);
  for (int64_t h = 0; h < heads; h += V::kLanes) {
    const int64_t count = heads - h;
    const auto part = [&](const float* p) {
      return count < V::kLanes ? LoadPart(p + h, count) : V::Load(p + h);
    };
    const V t = SoftplusOf(part(step) + part(bias));
    const V decay = Exp(part(rate) * t);
    const V strength = beta == nullptr ? t : SigmoidGated(part(beta), one);
    if (count < V::kLanes) {
      StorePart(decay, to.decay + h, count);
      StorePart(strength, to.strength + h, count);
    } else {
      decay.Store(to.decay + h);
      strength.Store(to.strength + h);
    }
  }
}

void LengthFactors(const float* x, int64_t heads, int64_t dim, float scale, float* factors) {
  for (int64_t g = 0; g < heads; ++g) {
    const float squares = SumRow(x + g * dim, dim, [](V v, V sum) { return V::Fma(v, v, sum); });
    factors[g] = scale / SquareRoot(squares + 1e-6f);
  }
}

// Vectors of columns in a pass over the keys. Their sums nearly fill the registers of AVX2, and hide an FMA's
// latency with two vectors of AVX-512.
constexpr int kStateVectors = V::kLanes == 1 ? 4 : kStateColumns / V::kLanes;
constexpr int kStateWidth = kStateVectors * V::kLanes;
static_assert(kStateColumns % kStateWidth == 0);

struct StateVectors {
  V v[kStateVectors];
};

inline StateVectors LoadColumns(const float* p, int64_t count) {
  StateVectors x;
  float lanes[kStateWidth] = {};
  if (count < kStateWidth) {
    for (int64_t c = 0; c < count; ++c) lanes[c] = p[c];
    p = lanes;
  }
  for (int i = 0; i < kStateVectors; ++i) x.v[i] = V::Load(p + i * V::kLanes);
  return x;
}

inline void StoreColumns(const StateVectors& x, float* p, int64_t count) {
  float lanes[kStateWidth];
  float* to = count < kStateWidth ? lanes : p;
  for (int i = 0; i < kStateVectors; ++i) x.v[i].Store(to + i * V::kLanes);
  for (int64_t c = 0; count < kStateWidth && c < count; ++c) p[c] = lanes[c];
}

// Some columns of a state in place, or a copy of them.
struct StateColumns {
  float* s;
  int64_t stride;
};

// S^T k
inline StateVectors SumOfKeys(StateColumns state, const float* k, int64_t key_dim) {
  StateVectors sum;
  for (int i = 0; i < kStateVectors; ++i) sum.v[i] = V::Set(0.0f);
  for (int64_t j = 0; j < key_dim; ++j) {
    const V key = V::Set(k[j]);
    for (int i = 0; i < kStateVectors; ++i)
      sum.v[i] = V::Fma(V::Load(state.s + j * state.stride + i * V::kLanes), key, sum.v[i]);
  }
  return sum;
}

// S <- decay S + k (x) d, o = S^T q, and known = S^T next if the rule needs it.
template <bool kNeedsKnown>
inline void PassOverKeys(const float* k, const float* q, const float* next, int64_t key_dim, V decay,
                         const StateVectors& d, StateColumns state, StateVectors& o, StateVectors& known) {
  StateVectors sum;
  StateVectors sum_known;
  for (int i = 0; i < kStateVectors; ++i) sum.v[i] = sum_known.v[i] = V::Set(0.0f);
  for (int64_t j = 0; j < key_dim; ++j) {
    const V key = V::Set(k[j]);
    const V query = V::Set(q[j]);
    const V next_key = V::Set(next[j]);
    float* row = state.s + j * state.stride;
    for (int i = 0; i < kStateVectors; ++i) {
      const V s = V::Fma(key, d.v[i], decay * V::Load(row + i * V::kLanes));
      s.Store(row + i * V::kLanes);
      sum.v[i] = V::Fma(s, query, sum.v[i]);
      if (kNeedsKnown) sum_known.v[i] = V::Fma(s, next_key, sum_known.v[i]);
    }
  }
  o = sum;
  known = sum_known;
}

// The `columns` columns from `first` on.
template <bool kDelta>
void RecurOver(const RecurrenceBlock& b, int64_t first, int64_t columns, StateColumns state) {
  StateVectors known = {};
  if (kDelta) known = SumOfKeys(state, b.k, b.key_dim);
  const V skip = V::Set(b.skip);
  for (int64_t row = 0; row < b.rows; ++row) {
    const float* k = b.k + row * b.k_stride;
    const float* next = row + 1 < b.rows ? k + b.k_stride : k;  // what the last row sums is not used
    const int64_t at = row * b.factor_stride;
    const StateVectors v = LoadColumns(b.v + row * b.v_stride + first, columns);
    const V strength = V::Set(b.strength[at]);
    StateVectors d;
    for (int i = 0; i < kStateVectors; ++i) d.v[i] = v.v[i] * strength;
    if (kDelta) {
      const V key_factor = V::Set(b.key_factor[at]);
      const V shrink = V::Set(b.decay[at] * b.key_factor[at]);
      for (int i = 0; i < kStateVectors; ++i) d.v[i] = strength * (v.v[i] - shrink * known.v[i]) * key_factor;
    }
    StateVectors o;
    PassOverKeys<kDelta>(k, b.q + row * b.q_stride, next, b.key_dim, V::Set(b.decay[at]), d, state, o, known);
    const V query_factor = V::Set(kDelta ? b.query_factor[at] : 1.0f);
    for (int i = 0; i < kStateVectors; ++i) o.v[i] = V::Fma(skip, v.v[i], o.v[i] * query_factor);
    StoreColumns(o, b.out + row * b.out_stride + first, columns);
  }
}

// Over a copy in `scratch`, which stays in the L1 cache whatever the strides. A state that is
// kept, and columns that do not fill the vectors, need one.
template <bool kDelta>
void RecurOverCopy(const RecurrenceBlock& b, int64_t first, int64_t columns, float* scratch) {
  for (int64_t j = 0; j < b.key_dim; ++j)
    StoreColumns(LoadColumns(b.state + j * b.state_stride + first, columns), scratch + j * kStateWidth,
                 kStateWidth);
  RecurOver<kDelta>(b, first, columns, {scratch, kStateWidth});
  if (b.keeps_state) return;
  for (int64_t j = 0; j < b.key_dim; ++j)
    StoreColumns(LoadColumns(scratch + j * kStateWidth, kStateWidth), b.state + j * b.state_stride + first,
                 columns);
}

// Fewer rows do not repay a copy, which is written back at the rate of misses. Zen 3, 32 heads of 128 by 128
// whose states are in the last cache: 350 us for a row with a copy, 87 in place; the same from 32 rows on.
constexpr int64_t kCopyRows = 32;

template <bool kDelta>
void RecurBlock(const RecurrenceBlock& b, float* scratch) {
  if (b.rows == 0) return;
  for (int64_t first = 0; first < b.columns; first += kStateWidth) {
    const int64_t columns = b.columns - first < kStateWidth ? b.columns - first : kStateWidth;
    if (b.rows < kCopyRows && columns == kStateWidth && !b.keeps_state) {
      RecurOver<kDelta>(b, first, columns, {b.state + first, b.state_stride});
    } else {
      RecurOverCopy<kDelta>(b, first, columns, scratch);
    }
  }
}

inline V ConvolvedPart(const ConvolutionRow& row, int64_t c, int64_t count) {
  const auto part = [&](const float* p) {
    return count < V::kLanes ? LoadPart(p + c, count) : V::Load(p + c);
  };
  V sum = part(row.weight) * part(row.x[0]);
  for (int64_t t = 1; t < row.taps; ++t)
    sum = V::Fma(part(row.weight + t * row.weight_stride), part(row.x[t]), sum);
  if (row.bias != nullptr) sum = sum + part(row.bias);
  return row.silu ? SiluOf(sum) : sum;
}

void ConvolveRow(const ConvolutionRow& row) {
  int64_t c = 0;
  for (; c + V::kLanes <= row.channels; c += V::kLanes) ConvolvedPart(row, c, V::kLanes).Store(row.y + c);
  if (c < row.channels) StorePart(ConvolvedPart(row, c, row.channels - c), row.y + c, row.channels - c);
}
