// Panel products of AVX-512: with vpdpbusd for codes, vdpbf16ps for bf16, and FMA for fp32.
//
// Registers hold the sums of 6 rows x 4 strips: 24, with 4 for the weights and one for the broadcast of x.
// Codes take 7 rows x 2 strips instead, so that registers also hold their 14 results: with 4 strips the
// results would pass through memory once per group. From L2, blocks of K = 2048 with groups of 32 run at 78 %
// of the peak (Emerald Rapids, one thread). A panel of four strips (K * 64 bytes of codes) stays in L2 while
// all rows pass, and the next one comes in beside it.
//
// vpdpbusd multiplies unsigned by signed bytes: weights are stored as code + 128, and the sums start at
// PanelTask::x_starts to compensate.

constexpr int kCodeRows = 7;
constexpr int kDotRows = 6;  // of bf16 and fp32
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

struct FloatDot {
  static constexpr int kValues = 1;
  static void Add(__m512i weights, __m512i x, __m512i* sums) {
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sums) : "v"(weights), "v"(x));
  }
};

// sums[strip][row] += x w over values [begin, begin + count) of K.
template <typename Dot, int kStrips>
inline void MultiplyRange(const PanelBlock& b, int64_t begin, int64_t count,
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
    for (int r = 0; r < kDotRows; ++r) own[s][r] = sums[s][r];
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

// What is prefetched of the thread's next panel while a block is multiplied: `step` bytes per group and pair
// of strips. The hardware would request a panel when its first block needs it: products of 2048 x 8192 run at
// 483 GOP/s instead of 468 (Emerald Rapids, one thread).
struct Ahead {
  const std::byte* from;
  int64_t step;
};

// Of a long panel only the beginning: L2 has 1 MiB on some CPUs, and holds the current panel too.
constexpr int64_t kMostAhead = 256 << 10;

inline Ahead AheadOf(const PanelBlock& b) {
  if (b.task.next_w == nullptr) return {b.task.w, 0};
  const int64_t blocks = (b.task.rows + kCodeRows - 1) / kCodeRows;
  const int64_t panel = b.task.depth * kDotStrips * kStripColumns;
  const int64_t bytes = panel < kMostAhead ? panel : kMostAhead;
  const int64_t step = bytes / (blocks * b.groups * (kDotStrips / 2));
  return {b.task.next_w + b.first_row / kCodeRows * b.groups * (kDotStrips / 2) * step, step};
}

// y = the results of `kStrips` strips, from `strip` on, over all of K, in rows of `stride` floats. One loop
// with all accumulators in it, because the compiler keeps them in registers only if none is passed on.
template <int kStrips, int64_t kGroup>
inline void MultiplyCodes(const PanelBlock& b, int strip, const Ahead& ahead, float* y, int64_t stride) {
  constexpr int64_t kWordBytes = 4;
  constexpr int64_t kStep = kGroup < kDepthStep ? kGroup : kDepthStep;  // divides every group
  static_assert(kDepthStep % kStep == 0 && kGroup % kStep == 0);
  const int64_t strip_bytes = b.task.depth * kStripColumns;
  const std::byte* x = b.x;
  const std::byte* w = b.task.w + strip * strip_bytes;
  const float* w_scales = b.task.w_scales + strip * b.groups * kStripColumns;
  __m512 results[kStrips][kCodeRows];
#pragma GCC unroll 2
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 7
    for (int r = 0; r < kCodeRows; ++r) results[s][r] = _mm512_setzero_ps();
  }
  const std::byte* next = ahead.from;
  for (int64_t g = 0; g < b.groups; ++g) {
    for (int64_t i = 0; i < ahead.step; i += 64) __builtin_prefetch(next + i, 0, 2);
    next += ahead.step;
    __m512i sums[kStrips][kCodeRows];
#pragma GCC unroll 7
    for (int r = 0; r < kCodeRows; ++r) {
      const __m512i start = _mm512_set1_epi32(b.x_starts[g * kCodeRows + r]);
#pragma GCC unroll 2
      for (int s = 0; s < kStrips; ++s) sums[s][r] = start;
    }
    const int64_t left = b.task.depth - g * kGroup;
    const int64_t steps = (left < kGroup ? left : kGroup) / kStep;
    for (int64_t step = 0; step < (kGroup == kStep ? 1 : steps); ++step) {
#pragma GCC unroll 8
      for (int64_t k = 0; k < kStep; k += CodeDot::kValues) {
        __m512i weights[kStrips];
#pragma GCC unroll 2
        for (int s = 0; s < kStrips; ++s) weights[s] = _mm512_loadu_si512(w + s * strip_bytes);
#pragma GCC unroll 7
        for (int r = 0; r < kCodeRows; ++r) {
          int32_t word;
          __builtin_memcpy(&word, x + r * kWordBytes, sizeof word);
          const __m512i values = _mm512_set1_epi32(word);
#pragma GCC unroll 2
          for (int s = 0; s < kStrips; ++s) CodeDot::Add(weights[s], values, &sums[s][r]);
        }
        x += kCodeRows * kWordBytes;
        w += kStripColumns * kWordBytes;
      }
    }
#pragma GCC unroll 2
    for (int s = 0; s < kStrips; ++s) {
      const __m512 w_scale = _mm512_loadu_ps(w_scales + (s * b.groups + g) * kStripColumns);
#pragma GCC unroll 7
      for (int r = 0; r < kCodeRows; ++r) {
        const int64_t at = g * kCodeRows + r;
        const __m512 sum = _mm512_fmadd_ps(_mm512_castsi512_ps(sums[s][r]), _mm512_set1_ps(b.x_scales[at]),
                                           _mm512_set1_ps(b.x_offsets[at]));
        results[s][r] = _mm512_fmadd_ps(sum, w_scale, results[s][r]);
      }
    }
  }
#pragma GCC unroll 2
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 7
    for (int r = 0; r < kCodeRows; ++r)
      _mm512_store_ps(y + r * stride + (strip + s) * kStripColumns, results[s][r]);
  }
}

template <int kStrips, int64_t kGroup>
void MultiplyCodeBlock(const PanelBlock& b) {
  constexpr int64_t kStride = kStrips * kStripColumns;
  alignas(64) float y[kCodeRows * kStride];
  Ahead ahead = AheadOf(b);
  for (int s = 0; s + 2 <= kStrips; s += 2) {
    MultiplyCodes<2, kGroup>(b, s, ahead, y, kStride);
    ahead.from += b.groups * ahead.step;
  }
  if constexpr (kStrips % 2 == 1) MultiplyCodes<1, kGroup>(b, kStrips - 1, ahead, y, kStride);
  WriteBlock(b, kCodeRows, y, kStride);
}

template <int kStrips>
void MultiplyBf16Block(const PanelBlock& b) {
  constexpr int64_t kStride = kStrips * kStripColumns;
  alignas(64) float y[kDotRows * kStride];
  __m512i sums[kStrips][kDotRows] = {};
  MultiplyRange<Bf16Dot, kStrips>(b, 0, b.task.depth, sums);
  for (int s = 0; s < kStrips; ++s) {
    for (int r = 0; r < kDotRows; ++r) _mm512_store_si512(y + r * kStride + s * kStripColumns, sums[s][r]);
  }
  WriteBlock(b, kDotRows, y, kStride);
}

void PackFloats(float* w, int rows, int64_t values, const float*, std::byte* strip, float*) {
  alignas(64) float whole[kStripColumns * kPackValues];
  for (int r = 0; r < kStripColumns; ++r) {
    for (int64_t i = 0; i < values; i += 16)
      (r < rows ? V::Load(w + r * kPackValues + i) : V::Set(0.0f)).Store(whole + r * values + i);
  }
  TurnRows(reinterpret_cast<const std::byte*>(whole), values * 4, strip);
}

void PrepareFloats(const float* x, int64_t count, int row, std::byte* block, const BlockScales&) {
  alignas(64) float padded[kPackValues];
  for (int64_t begin = 0; begin < count; begin += kPackValues) {
    const int64_t there = count - begin < kPackValues ? count - begin : kPackValues;
    const int64_t depth = PanelDepth(there);
    PadValues(x + begin, there, depth, padded);
    PlaceWords<kDotRows, BlockOrder::kWords>(reinterpret_cast<const std::byte*>(padded), depth, row, begin,
                                             PanelDepth(count), block);
  }
}

// Values of K that all blocks of a task multiply before the next ones: four strips of them stay in L2, where
// all of a long K would not. Emerald Rapids, K = 8192, one thread: 147 GFLOP/s with 512, 140 with 256, and
// 110 with 128, at which blocks of x are read in pieces too short for the prefetcher.
constexpr int64_t kFloatRange = 512;
// Rows of x whose results, 96 KiB, stay in L2 meanwhile.
constexpr int64_t kFloatRows = 64 * kDotRows;

// The product of at most kFloatRows rows.
template <int kStrips>
void MultiplyFloatRows(const PanelTask& task, int64_t first_block, int64_t blocks) {
  constexpr int64_t kStride = kStrips * kStripColumns;
  alignas(64) float y[kFloatRows * kStride];
  for (int64_t begin = 0; begin < task.depth; begin += kFloatRange) {
    const int64_t count = task.depth - begin < kFloatRange ? task.depth - begin : kFloatRange;
    for (int64_t i = 0; i < blocks; ++i) {
      float* to = y + i * kDotRows * kStride;
      __m512i sums[kStrips][kDotRows];
      for (int s = 0; s < kStrips; ++s) {
        for (int r = 0; r < kDotRows; ++r) {
          sums[s][r] =
              begin == 0 ? _mm512_setzero_si512() : _mm512_load_si512(to + r * kStride + s * kStripColumns);
        }
      }
      MultiplyRange<FloatDot>(BlockOf(task, first_block + i, kDotRows, 4, kPackValues), begin, count, sums);
      for (int s = 0; s < kStrips; ++s) {
        for (int r = 0; r < kDotRows; ++r)
          _mm512_store_si512(to + r * kStride + s * kStripColumns, sums[s][r]);
      }
    }
  }
  for (int64_t i = 0; i < blocks; ++i) {
    WriteBlock(BlockOf(task, first_block + i, kDotRows, 4, kPackValues), kDotRows, y + i * kDotRows * kStride,
               kStride);
  }
}

template <int kStrips>
void MultiplyFloats(const PanelTask& task) {
  constexpr int64_t kMost = kFloatRows / kDotRows;
  const int64_t blocks = (task.rows + kDotRows - 1) / kDotRows;
  for (int64_t i = 0; i < blocks; i += kMost)
    MultiplyFloatRows<kStrips>(task, i, blocks - i < kMost ? blocks - i : kMost);
}

template <typename Dot, int64_t kGroup, int kStrips>
void MultiplyStrips(const PanelTask& task) {
  if constexpr (Dot::kValues == 1) return MultiplyFloats<kStrips>(task);
  constexpr int kRows = Dot::kValues == 4 ? kCodeRows : kDotRows;
  for (int64_t i = 0; i * kRows < task.rows; ++i) {
    const PanelBlock block = BlockOf(task, i, kRows, 4 / Dot::kValues, kGroup);
    if constexpr (Dot::kValues == 4) {
      MultiplyCodeBlock<kStrips, kGroup>(block);
    } else {
      MultiplyBf16Block<kStrips>(block);
    }
  }
}

template <typename Dot, int64_t kGroup>
void MultiplyPanel(const PanelTask& task) {
  const int64_t strips = task.gated ? kDotStrips : StripsOf(task.columns);
  if (strips == 1) MultiplyStrips<Dot, kGroup, 1>(task);
  if (strips == 2) MultiplyStrips<Dot, kGroup, 2>(task);
  if (strips == 3) MultiplyStrips<Dot, kGroup, 3>(task);
  if (strips == 4) MultiplyStrips<Dot, kGroup, 4>(task);
}
