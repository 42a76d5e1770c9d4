// Matrix-vector products directly from stored weights: fp32 sums of one row of weights times `rows` rows of
// x.
//
// Weights pass through an fp32 buffer of 256 values, which stays in L1. Every chunk of x is then summed in
// the same order for any number of rows, so a row's result does not depend on the other rows.

constexpr int kDotChunk = 256;
constexpr int kDotRows = 4;  // rows of x per pass over the buffer
constexpr int kDotSums = 4;  // running sums per row, to hide the latency of an FMA

struct DotSums {
  V sums[kDotSums];
};

inline void ClearSums(DotSums* s) {
  for (int i = 0; i < kDotSums; ++i) s->sums[i] = V::Set(0.0f);
}

inline void AddChunk(const float* w, const float* x, int64_t count, DotSums* s) {
  constexpr int64_t kStep = kDotSums * V::kLanes;
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (int u = 0; u < kDotSums; ++u) {
      s->sums[u] = V::Fma(V::Load(w + i + u * V::kLanes), V::Load(x + i + u * V::kLanes), s->sums[u]);
    }
  }
  for (; i + V::kLanes <= count; i += V::kLanes)
    s->sums[0] = V::Fma(V::Load(w + i), V::Load(x + i), s->sums[0]);
  if (i < count) s->sums[1] = V::Fma(LoadPart(w + i, count - i), LoadPart(x + i, count - i), s->sums[1]);
}

inline float Total(const DotSums& s) { return ((s.sums[0] + s.sums[1]) + (s.sums[2] + s.sums[3])).Sum(); }

// `decode(k, part, buffer)` returns values [k, k + part) of the stored row in fp32, in `buffer` or, for fp32
// weights, in place.
template <typename Decode>
void DotRows(const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias, float* y,
             int64_t y_stride, Decode decode) {
  float buffer[kDotChunk];
  for (int64_t r = 0; r < rows; r += kDotRows) {
    const int64_t some = rows - r < kDotRows ? rows - r : kDotRows;
    DotSums sums[kDotRows];
    for (int i = 0; i < kDotRows; ++i) ClearSums(&sums[i]);
    for (int64_t k = 0; k < count; k += kDotChunk) {
      const int64_t part = count - k < kDotChunk ? count - k : kDotChunk;
      const float* w = decode(k, part, buffer);
      for (int64_t i = 0; i < some; ++i) AddChunk(w, x + (r + i) * x_stride + k, part, &sums[i]);
    }
    for (int64_t i = 0; i < some; ++i) y[(r + i) * y_stride] = Total(sums[i]) + bias;
  }
}

template <typename Format>
void DotBlocks(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
               float* y, int64_t y_stride) {
  DotRows(x, x_stride, rows, count, bias, y, y_stride, [w](int64_t k, int64_t part, float* buffer) {
    DequantizeBlocks<Format>(w + k / Format::kValues * Format::kBytes, part, buffer);
    return static_cast<const float*>(buffer);
  });
}

void DotF32(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
            float* y, int64_t y_stride) {
  const float* values = reinterpret_cast<const float*>(w);
  DotRows(x, x_stride, rows, count, bias, y, y_stride,
          [values](int64_t k, int64_t, float*) { return values + k; });
}

template <typename Widen>
void DotNarrow(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
               float* y, int64_t y_stride, Widen widen) {
  DotRows(x, x_stride, rows, count, bias, y, y_stride, [&](int64_t k, int64_t part, float* buffer) {
    widen(w + 2 * k, part, buffer);
    return static_cast<const float*>(buffer);
  });
}

void DotF16(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
            float* y, int64_t y_stride) {
  DotNarrow(w, x, x_stride, rows, count, bias, y, y_stride, WidenF16);
}

void DotBf16(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
             float* y, int64_t y_stride) {
  DotNarrow(w, x, x_stride, rows, count, bias, y, y_stride, WidenBf16);
}

// The 16-bit formats: LoadTwo streams two vectors of values in the order of x that `arrange` produces; Widen
// converts any number of values in their stored order.
struct HalfWeights {
  static void LoadTwo(const uint16_t* p, V* two) { V::LoadTwoF16(p, two); }
  static void Widen(const std::byte* w, int64_t count, float* y) { WidenF16(w, count, y); }
};
struct Bf16Weights {
  static void LoadTwo(const uint16_t* p, V* two) { V::LoadPairsBf16(p, two); }
  static void Widen(const std::byte* w, int64_t count, float* y) { WidenBf16(w, count, y); }
};

constexpr int64_t kStreamStep = kDotSums * V::kLanes;

// Arranges x in the order of LoadPairsBf16: of every two vectors, the values with even indices, then those
// with odd. Values beyond the last whole step keep their place.
void ArrangePairs(const float* x, int64_t count, float* y) {
  const int64_t whole = count / kStreamStep * kStreamStep;
  for (int64_t i = 0; i < whole; i += 2 * V::kLanes) {
    for (int64_t j = 0; j < V::kLanes; ++j) {
      y[i + j] = x[i + 2 * j];
      y[i + V::kLanes + j] = x[i + 2 * j + 1];
    }
  }
  for (int64_t i = whole; i < count; ++i) y[i] = x[i];
}

constexpr int64_t kCacheLine = 64;

// Prefetches bytes [begin, begin + count) of the weights into L2. Beyond the end of a mapped file, a prefetch
// does nothing.
inline void PrefetchWeights(const std::byte* begin, int64_t count) {
  for (int64_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(begin + i, 0, 2);
}

// kRows rows of 16-bit weights times one row of x. The weights go from memory into the sums without a buffer,
// prefetched `ahead` bytes in advance (0: no prefetch). The order of summation depends only on `count`.
template <typename Weights, int kRows>
inline void DotStream(const std::byte* w, int64_t w_stride, const float* x, int64_t count, int64_t ahead,
                      float* y) {
  DotSums s[kRows];
  for (int r = 0; r < kRows; ++r) ClearSums(&s[r]);
  int64_t i = 0;
  for (; i + kStreamStep <= count; i += kStreamStep) {
    for (int r = 0; ahead != 0 && r < kRows; ++r)
      PrefetchWeights(w + r * w_stride + 2 * i + ahead, 2 * kStreamStep);
    for (int u = 0; u < kDotSums; u += 2) {
      const int64_t at = i + u * V::kLanes;
      const V first = V::Load(x + at);
      const V second = V::Load(x + at + V::kLanes);
      for (int r = 0; r < kRows; ++r) {
        V two[2];
        Weights::LoadTwo(reinterpret_cast<const uint16_t*>(w + r * w_stride) + at, two);
        s[r].sums[u] = V::Fma(two[0], first, s[r].sums[u]);
        s[r].sums[u + 1] = V::Fma(two[1], second, s[r].sums[u + 1]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float rest[kStreamStep];
    Weights::Widen(w + r * w_stride + 2 * i, count - i, rest);
    AddChunk(rest, x + i, count - i, &s[r]);
    y[r] = Total(s[r]);
  }
}

// The fastest way to stream rows of weights depends on how much of L1 x leaves. Measured on Zen 4, two
// threads, 1 GiB of a mapped file, bf16, relative to the rate at which vdpbf16ps reads single rows; medians
// of 21 to 31 interleaved runs:
//   values of x                     2048   4096   8192  14336
//   one row, no prefetch            1.02   0.78   0.72   0.77   the hardware prefetcher is best for a small x
//   one row, prefetch 16 kB ahead   0.97   0.97   1.08   1.07
//   three rows, prefetch the next   0.91   0.96   1.11   1.14   x is read once for all three
// With vectors of 32 bytes and two rows: 0.99, 0.91, 0.96 with 2048 values and 0.67, 0.96, 1.02 with 8192.
// f16 was timed only in whole decode steps, where it was level with three rows at every length.
constexpr int64_t kDotAhead = 16384;
constexpr int64_t kNoAheadValues = 2048;  // values of x up to which no prefetch is used
// Up to this many values of x, rows are read singly.
constexpr int64_t kSingleRowValues = 4096;
constexpr int kStreamRows = V::kLanes == 16 ? 3 : 2;

template <typename Weights>
void StreamNarrow(const StreamTask& t) {
  int64_t r = 0;
  for (; t.count > kSingleRowValues && r + kStreamRows <= t.rows; r += kStreamRows) {
    DotStream<Weights, kStreamRows>(t.w + r * t.w_stride, t.w_stride, t.x, t.count, kStreamRows * t.w_stride,
                                    t.y + r);
  }
  const int64_t ahead = t.count > kNoAheadValues ? kDotAhead : 0;
  for (; r < t.rows; ++r) DotStream<Weights, 1>(t.w + r * t.w_stride, 0, t.x, t.count, ahead, t.y + r);
  for (r = 0; t.bias != nullptr && r < t.rows; ++r) t.y[r] += t.bias[r];
}
