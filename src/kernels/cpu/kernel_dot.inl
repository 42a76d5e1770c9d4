// Matrix-vector products straight from stored weights: fp32 sums, one row of weights against `rows` rows of
// x.
//
// The weights pass through a buffer of fp32 values, 256 at a time, which stays in L1; every chunk of x is
// then summed in the same order whatever the number of rows, which makes a row's result independent of its
// company.

constexpr int kDotChunk = 256;
constexpr int kDotRows = 4;  // rows of x per pass over the buffer
constexpr int kDotSums = 4;  // running sums per row: hides the latency of an FMA

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

// Fills the buffer with values [begin, begin + count) of the stored row, or points into it where it is fp32.
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

// How far ahead of the sums 16-bit weights are asked for, into L2: the processor's own prefetcher alone leaves it
// waiting. Zen 4, one thread, rows of 2048 and 8192: 15.3 and 8.5 GB/s without, 19.6 and 12.1 with; the same for any
// distance from 6 to 32 kB. Asking for them in L1 makes both slower, and so does asking for quantised blocks.
constexpr int64_t kDotAhead = 16384;
constexpr int64_t kCacheLine = 64;

// Bytes [begin, begin + count) of the weights; behind the end of a file nothing happens.
inline void PrefetchWeights(const std::byte* begin, int64_t count) {
  for (int64_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(begin + i, 0, 2);
}

// One row of x needs no buffer: the weights stream from memory into the sums. The order of summation is that
// of DotRows, whose chunks are whole steps of AddChunk.
template <typename Load, typename Widen>
void DotNarrow(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
               float* y, int64_t y_stride, Load load, Widen widen) {
  static_assert(kDotChunk % (kDotSums * V::kLanes) == 0);
  if (rows != 1) {
    return DotRows(x, x_stride, rows, count, bias, y, y_stride, [&](int64_t k, int64_t part, float* buffer) {
      widen(w + 2 * k, part, buffer);
      return static_cast<const float*>(buffer);
    });
  }
  const uint16_t* values = reinterpret_cast<const uint16_t*>(w);
  DotSums s;
  ClearSums(&s);
  int64_t i = 0;
  for (; i + kDotSums * V::kLanes <= count; i += kDotSums * V::kLanes) {
    PrefetchWeights(w + 2 * i + kDotAhead, 2 * kDotSums * V::kLanes);
    for (int u = 0; u < kDotSums; ++u) {
      s.sums[u] = V::Fma(load(values + i + u * V::kLanes), V::Load(x + i + u * V::kLanes), s.sums[u]);
    }
  }
  for (; i + V::kLanes <= count; i += V::kLanes)
    s.sums[0] = V::Fma(load(values + i), V::Load(x + i), s.sums[0]);
  if (i < count) {
    float rest[V::kLanes] = {};
    widen(w + 2 * i, count - i, rest);
    s.sums[1] = V::Fma(V::Load(rest), LoadPart(x + i, count - i), s.sums[1]);
  }
  y[0] = Total(s) + bias;
}

void DotF16(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
            float* y, int64_t y_stride) {
  DotNarrow(
      w, x, x_stride, rows, count, bias, y, y_stride, [](const uint16_t* p) { return V::LoadF16(p); },
      WidenF16);
}

void DotBf16(const std::byte* w, const float* x, int64_t x_stride, int64_t rows, int64_t count, float bias,
             float* y, int64_t y_stride) {
  DotNarrow(
      w, x, x_stride, rows, count, bias, y, y_stride, [](const uint16_t* p) { return V::LoadBf16(p); },
      WidenBf16);
}
