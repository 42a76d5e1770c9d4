// Panel products on 256-bit vectors: codes, with AVX2 or AVX-VNNI, and fp32. Included after V and
// kernel_math.inl.
//
// Registers hold the sums of 6 rows x 1 strip: 12, with 2 for the weights, one for the broadcast of x and one
// for a product. A block of x is four times 6 rows, which pass over one group of one strip (4 to 16 KiB)
// while it stays in L1.
//
// AVX2 multiplies unsigned by signed bytes and saturates the sum of two products to int16. Two products of
// codes fit, but two of code + 128 by a code do not, so byte products would have to move the sign from one
// side to the other each time (but for stored codes of 4 bits, panel_nibbles.inl). Codes widened to int16
// need no such step: vpmaddwd adds pairs exactly to int32. Both take four instructions for 32 products.
// Measured from registers on Zen 4 (GOP/s): int16 180, bytes with vpsignb 125, fp32 FMA 115.
//
// AVX-VNNI has the byte product of AVX-512 VNNI: weights are stored as code + 128, and the sums start at
// PanelTask::x_starts to compensate.

constexpr int kSumRows = 6;
constexpr int kBlockRows = 24;
constexpr int kPanelStrips = 4;
constexpr int64_t kPanelColumns = kPanelStrips * kStripColumns;
constexpr int64_t kWordBytes = 4;

// sum += words of weights * one word of x in every lane; a word holds kValues values. Written as assembly
// because GCC 12 places all products of a step before all sums, runs out of registers and keeps the sums in
// memory.
template <int64_t kCodeGroup>
struct WideDot {
  static constexpr int kValues = 2;
  static constexpr bool kScaled = true;
  static constexpr int64_t kGroup = kCodeGroup;
  static constexpr bool kFromSums = false;
  static void Add(__m256i weights, __m256i x, __m256i* sum) {
    __m256i pairs;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(*sum), "=&x"(pairs) : "x"(weights), "x"(x));
  }
};

template <int64_t kCodeGroup>
struct VnniDot {
  static constexpr int kValues = 4;
  static constexpr bool kScaled = true;
  static constexpr int64_t kGroup = kCodeGroup;
  static constexpr bool kFromSums = true;
  static void Add(__m256i weights, __m256i x, __m256i* sum) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(weights), "x"(x));
  }
};

struct FloatDot {
  static constexpr int kValues = 1;
  static constexpr bool kScaled = false;
  static constexpr int64_t kGroup = kPackValues;  // values per pass
  static constexpr bool kFromSums = false;
  static void Add(__m256i weights, __m256i x, __m256i* sum) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(weights), "x"(x));
  }
};

#include "kernels/cpu/avx2/panel_rows.inl"

// [row][half of the strip]
using Sums = __m256i[kSumRows][2];

// sums += x w over `words` words.
template <typename Dot>
inline void MultiplyWords(const std::byte* x, const std::byte* w, int64_t words, Sums& sums) {
  // Local and fully unrolled, so that they stay in registers.
  Sums own;
#pragma GCC unroll 6
  for (int r = 0; r < kSumRows; ++r) {
    own[r][0] = sums[r][0];
    own[r][1] = sums[r][1];
  }
  for (int64_t k = 0; k < words; ++k) {
    const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 6
    for (int r = 0; r < kSumRows; ++r) {
      int32_t word;
      __builtin_memcpy(&word, x + r * kWordBytes, sizeof word);
      const __m256i values = _mm256_set1_epi32(word);
      Dot::Add(left, values, &own[r][0]);
      Dot::Add(right, values, &own[r][1]);
    }
    x += kSumRows * kWordBytes;
    w += kStripColumns * kWordBytes;
  }
#pragma GCC unroll 6
  for (int r = 0; r < kSumRows; ++r) {
    sums[r][0] = own[r][0];
    sums[r][1] = own[r][1];
  }
}

// The results in y [kBlockRows][kPanelColumns] of kSumRows rows, starting with `row`, and one strip.
inline float* ResultsAt(float* y, int row, int strip) {
  return y + row * kPanelColumns + strip * kStripColumns;
}

// y += sums * scales, for one group.
inline void AddScaled(const PanelBlock& b, int64_t group, int strip, int row, const Sums& sums, float* y) {
  const float* w_scales = b.task.w_scales + (strip * b.groups + group) * kStripColumns;
  const float* x_scales = b.x_scales + group * kBlockRows + row;
  const float* x_offsets = b.x_offsets + group * kBlockRows + row;
  float* to = ResultsAt(y, row, strip);
  for (int half = 0; half < 2; ++half) {
    const V w = V::Load(w_scales + half * V::kLanes);
    for (int r = 0; r < kSumRows; ++r) {
      float* at = to + r * kPanelColumns + half * V::kLanes;
      const V sum = V::Fma({_mm256_castsi256_ps(sums[r][half])}, V::Set(x_scales[r]), V::Set(x_offsets[r]));
      V::Fma(sum, w, V::Load(at)).Store(at);
    }
  }
}

// y += x w over one group of K, for kSumRows rows of the block, starting with `row`, and one strip.
template <typename Dot>
inline void AddGroup(const PanelBlock& b, int64_t group, int strip, int row, float* y) {
  const int64_t begin = group * Dot::kGroup / Dot::kValues;  // words
  const int64_t words = GroupWords<Dot>(b.task.depth, group);
  const int64_t depth_words = b.task.depth / Dot::kValues;
  const std::byte* w = b.task.w + (strip * depth_words + begin) * kStripColumns * kWordBytes;
  const std::byte* x = b.x + (begin * kBlockRows + row * words) * kWordBytes;
  Sums sums;
  for (int r = 0; r < kSumRows; ++r) {
    if constexpr (Dot::kScaled) {
      sums[r][0] = sums[r][1] = _mm256_set1_epi32(b.x_starts[group * kBlockRows + row + r]);
    } else {
      const float* at = ResultsAt(y, row + r, strip);
      for (int half = 0; half < 2; ++half)
        sums[r][half] = _mm256_castps_si256(V::Load(at + half * V::kLanes).v);
    }
  }
  MultiplyWords<Dot>(x, w, words, sums);
  if constexpr (Dot::kScaled) {
    AddScaled(b, group, strip, row, sums, y);
  } else {
    for (int r = 0; r < kSumRows; ++r) {
      float* at = ResultsAt(y, row + r, strip);
      for (int half = 0; half < 2; ++half) V{_mm256_castsi256_ps(sums[r][half])}.Store(at + half * V::kLanes);
    }
  }
}

// The blocks of a task, whose values take `value_bytes`. add(block, group, strip, row, y) multiplies one
// group of K, kRows rows from `row` on, and one strip.
template <int kRows, typename Add>
inline void MultiplyBlocks(const PanelTask& task, int64_t value_bytes, int64_t group, Add add) {
  const int strips = task.gated ? kPanelStrips : static_cast<int>(StripsOf(task.columns));
  for (int64_t i = 0; i * kBlockRows < task.rows; ++i) {
    const PanelBlock block = BlockOf(task, i, kBlockRows, value_bytes, group);
    const int64_t left = task.rows - block.first_row;
    const int rows = left < kBlockRows ? static_cast<int>(left) : kBlockRows;
    alignas(32) float y[kBlockRows * kPanelColumns] = {};
    for (int64_t g = 0; g < block.groups; ++g) {
      for (int strip = 0; strip < strips; ++strip) {
        for (int row = 0; row < rows; row += kRows) add(block, g, strip, row, y);
      }
    }
    WriteBlock(block, rows, y);
  }
}

template <typename Dot>
void MultiplyPanel(const PanelTask& task) {
  const auto add = [](const PanelBlock& b, int64_t group, int strip, int row, float* y) {
    AddGroup<Dot>(b, group, strip, row, y);
  };
  MultiplyBlocks<kSumRows>(task, kWordBytes / Dot::kValues, Dot::kGroup, add);
}

template <typename Dot>
constexpr PanelKernels PanelsOf() {
  return {.value_bytes = kWordBytes / Dot::kValues,
          .scaled = Dot::kScaled,
          .group = Dot::kGroup,
          .block_rows = kBlockRows,
          .strips = kPanelStrips,
          .pack = PackWords<Dot>,
          .prepare = PrepareWords<Dot>,
          .multiply = MultiplyPanel<Dot>};
}
