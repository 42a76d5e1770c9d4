// Conversion of float rows to panel words on 256-bit vectors, and the output of results. Part of panels.inl.

// The largest magnitude of `count` floats, a multiple of 8, as bits. A NaN ranks above infinity.
inline uint32_t LargestMagnitude(const float* x, int64_t count) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
    top = _mm256_max_epu32(top, _mm256_and_si256(bits, magnitude));
  }
  __m128i most = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(most));
}

// Eight codes, rounded to nearest even, in [-127, 127].
inline __m256i CodesOf(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

// Eight words of codes from 8 * kValues floats.
template <int kValues>
inline __m256i WordsOf(const float* x, __m256 inverse) {
  const __m256i low = _mm256_packs_epi32(CodesOf(x, inverse), CodesOf(x + 8, inverse));
  // The packs work within 128-bit halves; the permutations restore the order.
  if constexpr (kValues == 2) return _mm256_permute4x64_epi64(low, 0xd8);
  const __m256i high = _mm256_packs_epi32(CodesOf(x + 16, inverse), CodesOf(x + 24, inverse));
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// `values` floats as words of codes, each byte xor `flip`.
template <int kValues>
inline void CodeRow(const float* x, int64_t values, float inverse, uint8_t flip, std::byte* words) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(flip));
  for (int64_t i = 0; i < values; i += 8 * kValues) {
    const __m256i codes = _mm256_xor_si256(WordsOf<kValues>(x + i, _mm256_set1_ps(inverse)), mask);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i / kValues * kWordBytes), codes);
  }
}

// Rows of words, `row_bytes` apart, as a strip [words][kStripColumns].
inline void TurnRows(const std::byte* rows, int64_t row_bytes, std::byte* strip) {
  for (int64_t i = 0; i < row_bytes; i += 32) {
    for (int first = 0; first < kStripColumns; first += 8) {
      V words[8];
      for (int r = 0; r < 8; ++r) {
        words[r] = V::Load(reinterpret_cast<const float*>(rows + (first + r) * row_bytes + i));
      }
      V::Transpose(words);
      for (int k = 0; k < 8; ++k) {
        words[k].Store(reinterpret_cast<float*>(strip + ((i / 4 + k) * kStripColumns + first) * kWordBytes));
      }
    }
  }
}

// One group of a row, `values` floats, as words.
template <typename Dot>
inline void WordRow(const float* x, int64_t values, float inverse, uint8_t flip, std::byte* words) {
  if constexpr (Dot::kScaled) {
    CodeRow<Dot::kValues>(x, values, inverse, flip, words);
  } else {
    __builtin_memcpy(words, x, static_cast<size_t>(values) * sizeof(float));
  }
}

template <typename Dot>
void PackWords(float* w, int rows, int64_t values, const float* steps, std::byte* strip, float* scales) {
  alignas(32) std::byte words[kStripColumns * kPackValues / Dot::kValues * kWordBytes];
  const int64_t row_bytes = values / Dot::kValues * kWordBytes;
  constexpr uint8_t kFlip = Dot::kFromSums ? 0x80 : 0;
  constexpr float kOne = 1.0f / static_cast<float>(Dot::kGroup);
  for (int r = 0; r < kStripColumns; ++r) {
    std::byte* to = words + r * row_bytes;
    if (r >= rows) __builtin_memset(to, kFlip, static_cast<size_t>(row_bytes));
    if (Dot::kScaled && r < rows) RotateBack<Dot::kGroup>(w + r * kPackValues, values);
    for (int64_t begin = 0; begin < values; begin += Dot::kGroup) {
      const int64_t count = values - begin < Dot::kGroup ? values - begin : Dot::kGroup;
      const float* group = w + r * kPackValues + begin;
      const int64_t at = begin / Dot::kGroup * kStripColumns + r;
      IntScale s = {0.0f, 0.0f};
      if (Dot::kScaled && r < rows)
        s = ScaleOfWeights(LargestMagnitude(group, count), steps == nullptr ? 0.0f : steps[at] * kOne);
      if (Dot::kScaled) scales[at] = s.scale;
      if (r < rows) WordRow<Dot>(group, count, s.inverse, kFlip, to + begin / Dot::kValues * kWordBytes);
    }
  }
  TurnRows(words, row_bytes, strip);
}

inline int32_t SumOfCodes(const float* x, int64_t values, float inverse) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < values; i += 8) {
    sum = _mm256_add_epi32(sum, CodesOf(x + i, _mm256_set1_ps(inverse)));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  int32_t all = 0;
  for (int32_t lane : lanes) all += lane;
  return all;
}

// The number of words of one group of K.
template <typename Dot>
inline int64_t GroupWords(int64_t depth, int64_t group) {
  const int64_t left = depth - group * Dot::kGroup;
  return (left < Dot::kGroup ? left : Dot::kGroup) / Dot::kValues;
}

// Writes row `row` of a block, whose layout is [groups][kBlockRows / kSumRows][words of the group][kSumRows],
// so that words used together are adjacent. Rows far apart would compete for the same few cache lines if K is
// a power of two.
template <typename Dot>
void PrepareWords(const float* x, int64_t count, int row, std::byte* block, const BlockScales& scales) {
  alignas(32) float values[Dot::kGroup];
  alignas(32) std::byte words[Dot::kGroup / Dot::kValues * kWordBytes];
  const int64_t all = PanelDepth(count);
  for (int64_t begin = 0; begin < all; begin += Dot::kGroup) {
    const int64_t depth = all - begin < Dot::kGroup ? all - begin : Dot::kGroup;
    const bool whole = count - begin >= depth;
    if (!whole || !Dot::kScaled) PadValues(x + begin, count - begin, depth, values);
    IntScale s = {0.0f, 0.0f};
    if constexpr (Dot::kScaled) {
      Rotate<Dot::kGroup>(whole ? x + begin : values, depth, values);
      s = ShortScaleOf(LargestMagnitude(values, depth));
      const int32_t start = Dot::kFromSums ? -128 * SumOfCodes(values, depth, s.inverse) : 0;
      PlaceScale(scales, begin / Dot::kGroup * kBlockRows + row, s.scale, start);
    }
    WordRow<Dot>(values, depth, s.inverse, 0, words);
    const int64_t count_words = depth / Dot::kValues;
    std::byte* rows =
        block + (begin / Dot::kValues * kBlockRows + row / kSumRows * kSumRows * count_words) * kWordBytes;
    PlaceWords<kSumRows, BlockOrder::kWords>(words, count_words, row % kSumRows, 0, count_words, rows);
  }
}

// Eight floats, or the first `count` if there are fewer. Not masked: masked stores take a dozen cycles on
// Zen.
inline V LoadColumns(const float* p, int64_t count) {
  return count >= V::kLanes ? V::Load(p) : LoadPart(p, count);
}

// Eight results of a block's row, from column c on, with the bias and, if gated, the gate applied.
inline V FinishColumns(const PanelTask& t, const float* row, int64_t c) {
  constexpr int64_t kHalf = kPanelColumns / 2;
  V v = V::Load(row + c);
  if (t.bias != nullptr) v = v + LoadColumns(t.bias + c, t.columns - c);
  if (!t.gated) return v;
  V up = V::Load(row + kHalf + c);
  if (t.bias != nullptr) up = up + LoadColumns(t.up_bias + c, t.columns - c);
  return Activated(t.activation, v, up);
}

// Writes the existing rows and columns of a finished block.
inline void WriteBlock(const PanelBlock& b, int64_t rows, const float* y) {
  const PanelTask& t = b.task;
  for (int64_t r = 0; r < rows; ++r) {
    float* to = t.y + (b.first_row + r) * t.y_stride;
    for (int64_t c = 0; c < t.columns; c += V::kLanes) {
      V v = FinishColumns(t, y + r * kPanelColumns, c);
      if (t.add) v = v + LoadColumns(to + c, t.columns - c);
      if (t.columns - c >= V::kLanes) {
        v.Store(to + c);
      } else {
        StorePart(v, to + c, t.columns - c);
      }
    }
  }
}
