// Panel products of stored codes of 4 bits on AVX2, whose byte product panels.inl cannot use. Part of
// panels_avx2.cpp, after panels.inl.
//
// vpmaddubsw multiplies unsigned by signed bytes and saturates the sum of two products to int16. Rotated in
// blocks of 32, codes fill a byte, and two products with codes of x do not fit. Rotated in blocks of four,
// w' = H w for codes w from -8 to 7, they are from -32 to 30: stored as w' + 32, two such pairs fit,
//
//   4 * 62 * 127 = 31496 < 2^15,
//
// so that eight products of a column and row take two byte products, a sum of int16, and one vpmaddwd by
// ones, where codes widened to int16 take four vpmaddwd.
//
// Scales still belong to 32 values, on both sides:
//
//   y[m][n] = sum over groups g, in order:  fma(xs[m][g] * sum_k xq[m][k] wq[n][k], d[n][g] / 4, y[m][n])
//
// Formats with a minimum have w = d (code - 8) + shift, and add fma(sum of x[m][k] over g, shift[n][g],
// y[m][n]) after it: a shift is not rounded. The sum of x is that of eight partial sums, in V::Sum's order.
//
// An outlier of x is spread over four values instead of 32, which costs some accuracy: the divergence from
// fp32 (KL in nats, SmolLM2-135M-Instruct in Q4_0, 4 chunks of 1,024 tokens) is 0.0013; rotated in blocks of
// 32 it is 0.0007, in blocks of two 0.0021, and not rotated, as in llama.cpp, 0.0035.

constexpr int kNibbleRows = 3;
constexpr int32_t kNibbleBase = 32;  // what is added to rotated codes
constexpr int64_t kNibbleWords = kVectorGroup / 4;
static_assert(kBlockRows % kNibbleRows == 0);

// H x in blocks of four lanes. fma(+-1, x, swapped) rounds like an addition.
inline __m256 RotateFours(__m256 x) {
  const __m256 twos = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
  const __m256 ones = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
  x = _mm256_fmadd_ps(x, twos, _mm256_permute_ps(x, 0x4e));
  return _mm256_fmadd_ps(x, ones, _mm256_permute_ps(x, 0xb1));
}

// The same of 32 codes from -8 to 7, plus kNibbleBase.
inline __m256i RotateCodes(__m256i codes) {
  const __m256i twos = _mm256_set1_epi32(static_cast<int32_t>(0xffff0101));
  const __m256i ones = _mm256_set1_epi32(static_cast<int32_t>(0xff01ff01));
  const __m256i across =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  const __m256i beside =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  codes = _mm256_add_epi8(_mm256_sign_epi8(codes, twos), _mm256_shuffle_epi8(codes, across));
  codes = _mm256_add_epi8(_mm256_sign_epi8(codes, ones), _mm256_shuffle_epi8(codes, beside));
  return _mm256_add_epi8(codes, _mm256_set1_epi8(kNibbleBase));
}

// PanelKernels::prepare. The layout is that of PrepareWords, with kNibbleRows rows beside each other.
void PrepareNibbles(const float* x, int64_t count, int row, std::byte* block, const BlockScales& scales) {
  alignas(32) float values[kVectorGroup];
  alignas(32) std::byte words[kVectorGroup];
  const int64_t all = PanelDepth(count);
  for (int64_t begin = 0; begin < all; begin += kVectorGroup) {
    const float* from = x + begin;
    if (count - begin < kVectorGroup) {
      PadValues(from, count - begin, kVectorGroup, values);
      from = values;
    }
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < kVectorGroup; i += V::kLanes) {
      const __m256 eight = _mm256_loadu_ps(from + i);
      sum = _mm256_add_ps(sum, eight);
      _mm256_store_ps(values + i, RotateFours(eight));
    }
    const IntScale s = ShortScaleOf(LargestMagnitude(values, kVectorGroup));
    const int64_t at = begin / kVectorGroup * kBlockRows + row;
    PlaceScale(scales, at, s.scale, -kNibbleBase * SumOfCodes(values, kVectorGroup, s.inverse));
    scales.sums[at] = V{sum}.Sum();
    CodeRow<4>(values, kVectorGroup, s.inverse, 0, words);
    std::byte* rows =
        block + (begin / 4 * kBlockRows + row / kNibbleRows * kNibbleRows * kNibbleWords) * kWordBytes;
    PlaceWords<kNibbleRows, BlockOrder::kWords>(words, kNibbleWords, row % kNibbleRows, 0, kNibbleWords,
                                                rows);
  }
}

// The step and shift of a group: value = step * (code - 8) + shift. One that is not finite becomes NaN, so
// that every result which it enters shows it.
struct NibbleScale {
  float step;
  float shift;
};

inline float Half(const std::byte* at) {
  uint16_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return _cvtsh_ss(bits);
}

inline float FiniteOrNan(float x) { return x - x == 0.0f ? x : __builtin_nanf(""); }

// Readers of the stored blocks (formats/quant_blocks.h). Group g of a row: its codes, in order, and scale.
template <bool kShift>
struct Q4Groups {
  static constexpr int64_t kCodes = kShift ? 4 : 2;
  static constexpr int64_t kBytes = kCodes + kVectorGroup / 2;
  static __m256i Codes(const std::byte* row, int64_t g) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + g * kBytes + kCodes));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  }
  static NibbleScale Scale(const std::byte* row, int64_t g) {
    const float step = Half(row + g * kBytes);
    return {step, kShift ? Half(row + g * kBytes + 2) + 8.0f * step : 0.0f};
  }
};

struct Q4KGroups {
  static constexpr int64_t kBytes = 144;
  static constexpr int64_t kCodes = 16;
  static __m256i Codes(const std::byte* row, int64_t g) {
    const std::byte* at = row + g / 8 * kBytes + kCodes + g % 8 / 2 * kVectorGroup;
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_and_si256(g % 2 == 0 ? bytes : _mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
  }
  static NibbleScale Scale(const std::byte* row, int64_t g) {
    const std::byte* at = row + g / 8 * kBytes;
    uint8_t packed[12];
    __builtin_memcpy(packed, at + 4, sizeof packed);
    const int j = static_cast<int>(g % 8);
    const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4);
    const int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6 << 4);
    const float step = Half(at) * static_cast<float>(scale);
    return {step, 8.0f * step - Half(at + 2) * static_cast<float>(minimum)};
  }
};

// PanelKernels::pack_q4_0 and the others. Columns that do not exist are zeros with a scale of zero.
template <typename Groups, bool kShift>
void PackNibbles(const std::byte* const* rows, int count, int64_t values, std::byte* strip, float* scales) {
  constexpr int kVectors = kShift ? 2 : 1;
  alignas(32) std::byte words[kStripColumns * kPackValues] = {};
  const int64_t groups = values / kVectorGroup;
  __builtin_memset(scales, 0, static_cast<size_t>(groups * kVectors * kStripColumns) * sizeof(float));
  for (int r = 0; r < count; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const __m256i codes = _mm256_sub_epi8(Groups::Codes(rows[r], g), _mm256_set1_epi8(8));
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + r * values + g * kVectorGroup),
                         RotateCodes(codes));
      const NibbleScale s = Groups::Scale(rows[r], g);
      float* to = scales + g * kVectors * kStripColumns + r;
      to[0] = FiniteOrNan(s.step) * 0.25f;
      if constexpr (kShift) to[kStripColumns] = FiniteOrNan(s.shift);
    }
  }
  TurnRows(words, values, strip);
}

// sum += 8 values of w by those of x, of eight columns and one row: two words each. Written as assembly for
// the reason that WideDot gives.
inline void AddTwoWords(__m256i w0, __m256i x0, __m256i w1, __m256i x1, __m256i ones, __m256i* sum) {
  __m256i pairs;
  __m256i more;
  __asm__(
      "vpmaddubsw %4, %3, %1\n\tvpmaddubsw %6, %5, %2\n\tvpaddw %2, %1, %1\n\t"
      "vpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
      : "+x"(*sum), "=&x"(pairs), "=&x"(more)
      : "x"(w0), "x"(x0), "x"(w1), "x"(x1), "x"(ones));
}

inline __m256i BroadcastWord(const std::byte* at) {
  int32_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return _mm256_set1_epi32(word);
}

inline __m256i LoadWords(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// y += x w over one group of K, for kNibbleRows rows of the block, starting with `row`, and one strip.
template <bool kShift>
inline void AddNibbleGroup(const PanelBlock& b, int64_t group, int strip, int row, float* y) {
  constexpr int kVectors = kShift ? 2 : 1;
  const __m256i ones = _mm256_set1_epi16(1);
  const std::byte* w = b.task.w + (strip * b.task.depth + group * kVectorGroup) * kStripColumns;
  const std::byte* x = b.x + (group * kBlockRows + row) * kVectorGroup;
  const int64_t at = group * kBlockRows + row;
  __m256i sums[kNibbleRows][2];
#pragma GCC unroll 3
  for (int r = 0; r < kNibbleRows; ++r) sums[r][0] = sums[r][1] = _mm256_set1_epi32(b.x_starts[at + r]);
#pragma GCC unroll 4
  for (int64_t k = 0; k < kNibbleWords; k += 2) {
    const __m256i left = LoadWords(w);
    const __m256i right = LoadWords(w + 32);
    const __m256i next_left = LoadWords(w + 64);
    const __m256i next_right = LoadWords(w + 96);
#pragma GCC unroll 3
    for (int r = 0; r < kNibbleRows; ++r) {
      const __m256i value = BroadcastWord(x + r * kWordBytes);
      const __m256i next = BroadcastWord(x + (kNibbleRows + r) * kWordBytes);
      AddTwoWords(left, value, next_left, next, ones, &sums[r][0]);
      AddTwoWords(right, value, next_right, next, ones, &sums[r][1]);
    }
    x += 2 * kNibbleRows * kWordBytes;
    w += 2 * kStripColumns * kWordBytes;
  }
  const float* w_scales = b.task.w_scales + (strip * b.groups + group) * kVectors * kStripColumns;
  float* to = ResultsAt(y, row, strip);
  for (int half = 0; half < 2; ++half) {
    const V scale = V::Load(w_scales + half * V::kLanes);
    for (int r = 0; r < kNibbleRows; ++r) {
      float* results = to + r * kPanelColumns + half * V::kLanes;
      const V sum = V::Fma({_mm256_castsi256_ps(sums[r][half])}, V::Set(b.x_scales[at + r]),
                           V::Set(b.x_offsets[at + r]));
      V result = V::Fma(sum, scale, V::Load(results));
      if constexpr (kShift) {
        const V shift = V::Load(w_scales + kStripColumns + half * V::kLanes);
        result = V::Fma(V::Set(b.x_sums[at + r]), shift, result);
      }
      result.Store(results);
    }
  }
}

template <bool kShift>
void MultiplyNibbles(const PanelTask& task) {
  const auto add = [](const PanelBlock& b, int64_t group, int strip, int row, float* y) {
    AddNibbleGroup<kShift>(b, group, strip, row, y);
  };
  MultiplyBlocks<kNibbleRows>(task, 1, kVectorGroup, add);
}

template <bool kShift>
constexpr PanelKernels NibblePanels() {
  return {.value_bytes = 1,
          .scaled = true,
          .group = kVectorGroup,
          .block_rows = kBlockRows,
          .strips = kPanelStrips,
          .pack = nullptr,
          .prepare = PrepareNibbles,
          .multiply = MultiplyNibbles<kShift>,
          .shifted = kShift,
          .pack_q4_0 = kShift ? nullptr : PackNibbles<Q4Groups<false>, false>,
          .pack_q4_1 = kShift ? PackNibbles<Q4Groups<true>, true> : nullptr,
          .pack_q4_k = kShift ? PackNibbles<Q4KGroups, true> : nullptr};
}
