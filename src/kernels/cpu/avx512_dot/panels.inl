// Panel products with the dot-product instructions of AVX-512: vpdpbusd for codes, vdpbf16ps for bf16.
//
// Registers hold the sums of 6 rows x 4 strips: 24, with 4 for the weights and one for the broadcast of x. A
// panel of four strips (K * 64 bytes of codes) stays in L2 while all rows pass.
//
// vpdpbusd multiplies unsigned by signed bytes: weights are stored as code + 128, and the sums start at -128
// * (sum of the row's codes) to compensate.

constexpr int kDotRows = 6;
constexpr int kDotStrips = 4;

// Written as assembly because GCC 12 copies the sums between registers, and to memory, around its own
// intrinsics, which costs half of the rate.
struct CodeDot {
  static constexpr int kValues = 4;  // values per word
  static void Add(__m512i weights, __m512i x, __m512i* sums) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(weights), "v"(x));
  }
};

struct Bf16Dot {
  static constexpr int kValues = 2;
  static void Add(__m512i weights, __m512i x, __m512i* sums) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(*sums) : "v"(weights), "v"(x));
  }
};

// sums[strip][row] = start[row] + x w over values [begin, begin + count) of K.
template <typename Dot, int kStrips>
inline void MultiplyRange(const PanelBlock& b, int64_t begin, int64_t count, const int32_t* start,
                          __m512i (&sums)[kStrips][kDotRows]) {
  constexpr int64_t kWordBytes = 4;
  const int64_t first = begin / Dot::kValues;
  const std::byte* x = b.x + first * kDotRows * kWordBytes;
  const std::byte* w = b.task.w + first * kStripColumns * kWordBytes;
  const int64_t strip = b.task.depth / Dot::kValues * kStripColumns * kWordBytes;
  // Local and fully unrolled, so that they stay in registers.
  __m512i own[kStrips][kDotRows];
#pragma GCC unroll 4
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 6
    for (int r = 0; r < kDotRows; ++r) own[s][r] = _mm512_set1_epi32(start[r]);
  }
  for (int64_t k = 0; k < count; k += Dot::kValues) {
    __m512i weights[kStrips];
    for (int s = 0; s < kStrips; ++s) weights[s] = _mm512_loadu_si512(w + s * strip);
    for (int r = 0; r < kDotRows; ++r) {
      int32_t word;
      __builtin_memcpy(&word, x + r * kWordBytes, sizeof word);
      const __m512i values = _mm512_set1_epi32(word);
      for (int s = 0; s < kStrips; ++s) Dot::Add(weights[s], values, &own[s][r]);
    }
    x += kDotRows * kWordBytes;
    w += kStripColumns * kWordBytes;
  }
#pragma GCC unroll 4
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 6
    for (int r = 0; r < kDotRows; ++r) sums[s][r] = own[s][r];
  }
}

// y = y + sums * scales, for one strip of one group. y holds the block's results, in rows of `stride` floats.
inline void AddScaled(const PanelBlock& b, int64_t group, int strip, const __m512i* sums, float* y,
                      int64_t stride) {
  const __m512 w = _mm512_loadu_ps(b.task.w_scales + (strip * b.groups + group) * kStripColumns);
  for (int r = 0; r < kDotRows; ++r) {
    float* to = y + r * stride + strip * kStripColumns;
    const __m512 scale = _mm512_mul_ps(w, _mm512_set1_ps(b.x_scales[group * kDotRows + r]));
    _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), scale, _mm512_load_ps(to)));
  }
}

template <int kStrips>
void MultiplyCodeBlock(const PanelBlock& b) {
  constexpr int64_t kStride = kStrips * kStripColumns;
  alignas(64) float y[kDotRows * kStride];
  // Unrolled, because the compiler turns `= {}` into `rep stos`, 2 % of a product's time.
#pragma GCC unroll 24
  for (int i = 0; i < kDotRows * kStrips; ++i) _mm512_store_ps(y + i * kStripColumns, _mm512_setzero_ps());
  for (int64_t g = 0; g < b.groups; ++g) {
    int32_t start[kDotRows];
    for (int r = 0; r < kDotRows; ++r) start[r] = -128 * b.x_sums[g * kDotRows + r];
    __m512i sums[kStrips][kDotRows];
    const int64_t begin = g * kVectorGroup;
    const int64_t left = b.task.depth - begin;
    MultiplyRange<CodeDot, kStrips>(b, begin, left < kVectorGroup ? left : kVectorGroup, start, sums);
    for (int s = 0; s < kStrips; ++s) AddScaled(b, g, s, sums[s], y, kStride);
  }
  WriteBlock(b, kDotRows, y, kStride);
}

template <int kStrips>
void MultiplyBf16Block(const PanelBlock& b) {
  constexpr int64_t kStride = kStrips * kStripColumns;
  alignas(64) float y[kDotRows * kStride];
  const int32_t zeros[kDotRows] = {};
  __m512i sums[kStrips][kDotRows];
  MultiplyRange<Bf16Dot, kStrips>(b, 0, b.task.depth, zeros, sums);
  for (int s = 0; s < kStrips; ++s) {
    for (int r = 0; r < kDotRows; ++r) _mm512_store_si512(y + r * kStride + s * kStripColumns, sums[s][r]);
  }
  WriteBlock(b, kDotRows, y, kStride);
}

template <typename Dot, int kStrips>
void MultiplyStrips(const PanelTask& task) {
  for (int64_t i = 0; i * kDotRows < task.rows; ++i) {
    const PanelBlock block = BlockOf(task, i, kDotRows, 4 / Dot::kValues, kVectorGroup);
    if constexpr (Dot::kValues == 4) {
      MultiplyCodeBlock<kStrips>(block);
    } else {
      MultiplyBf16Block<kStrips>(block);
    }
  }
}

template <typename Dot>
void MultiplyPanel(const PanelTask& task) {
  const int64_t strips = task.gated ? kDotStrips : StripsOf(task.columns);
  if (strips == 1) MultiplyStrips<Dot, 1>(task);
  if (strips == 2) MultiplyStrips<Dot, 2>(task);
  if (strips == 3) MultiplyStrips<Dot, 3>(task);
  if (strips == 4) MultiplyStrips<Dot, 4>(task);
}
