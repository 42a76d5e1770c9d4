// Integer products over quantised blocks: everything but the two products of bytes, which the file of the ISA
// defines before it includes this. Layouts: ggml's block_* structs, as in kernel_quants.inl.

inline __m256i LoadBytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i LoadHalf(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

inline uint32_t DotWord(const std::byte* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, sizeof w);
  return w;
}

inline float DotFactor(const std::byte* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

inline float SumOf(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// ---- x

inline __m256i RoundedCodes(const float* x, int64_t count, __m256 inverse) {
  if (count <= 0) return _mm256_setzero_si256();
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));  // to nearest even
}

void QuantizeGroup(const float* x, int64_t count, DotGroup* group) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 largest = _mm256_setzero_ps();
  __m256 finite = _mm256_setzero_ps();  // 0 * x: NaN for NaN and infinity, which a maximum may lose
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    largest = _mm256_max_ps(largest, _mm256_and_ps(v, magnitude));
    finite = _mm256_fmadd_ps(v, _mm256_setzero_ps(), finite);
  }
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  const float most = _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
  group->scale = most / 127.0f + SumOf(finite);
  constexpr float kTiny = 1e-30f;  // 127 / most must stay finite
  const __m256 inverse = _mm256_set1_ps(most > kTiny ? 127.0f / most : 0.0f);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t j = 0; j < kDotGroup / kDotBlock; ++j) {
    const float* from = x + j * kDotBlock;
    const int64_t left = count - j * kDotBlock;
    const __m256i a =
        _mm256_packs_epi32(RoundedCodes(from, left, inverse), RoundedCodes(from + 8, left, inverse));
    const __m256i b =
        _mm256_packs_epi32(RoundedCodes(from + 16, left, inverse), RoundedCodes(from + 24, left, inverse));
    // The packs work within halves: words of four codes come out as 0 2 4 6 1 3 5 7.
    const __m256i codes =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_store_si256(reinterpret_cast<__m256i*>(group->codes + j * kDotBlock), codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    __m256i sums = _mm256_madd_epi16(pairs, ones);
    sums = _mm256_add_epi32(sums, _mm256_srli_epi64(sums, 32));
    sums = _mm256_add_epi32(sums, _mm256_unpackhi_epi64(sums, sums));
    group->sums[j] = static_cast<int16_t>(_mm256_extract_epi16(sums, 0));
    group->sums[8 + j] = static_cast<int16_t>(_mm256_extract_epi16(sums, 8));
  }
}

void QuantizeDotRow(const float* x, int64_t count, DotGroup* groups) {
  for (int64_t i = 0; i < count; i += kDotGroup) {
    QuantizeGroup(x + i, count - i < kDotGroup ? count - i : kDotGroup, groups + i / kDotGroup);
  }
}

// ---- Blocks of 32: one fp16 factor each, so fp32 adds up their integer sums.

constexpr int kGroupBlocks = static_cast<int>(kDotGroup / kDotBlock);

// 32 four-bit codes: low nibbles first.
inline __m256i Nibbles(const std::byte* p) {
  const __m256i both = _mm256_broadcastsi128_si256(LoadHalf(p));
  const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
  return _mm256_and_si256(_mm256_srlv_epi32(both, shifts), _mm256_set1_epi8(15));
}

// Bit i of the word as 16 in byte i.
inline __m256i FifthBits(const std::byte* p) {
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(DotWord(p))),
                          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// Each format: bytes, where the minimum stands (-1: none), what is taken from every code, and 8 sums of 4
// products.
struct DotQ4_0 {
  static constexpr int kBytes = 18, kMinimum = -1, kOffset = 8;
  static __m256i Dot(const std::byte* b, __m256i x) { return DotBytes(Nibbles(b + 2), x); }
};
struct DotQ4_1 {
  static constexpr int kBytes = 20, kMinimum = 2, kOffset = 0;
  static __m256i Dot(const std::byte* b, __m256i x) { return DotBytes(Nibbles(b + 4), x); }
};
struct DotQ5_0 {
  static constexpr int kBytes = 22, kMinimum = -1, kOffset = 16;
  static __m256i Dot(const std::byte* b, __m256i x) {
    return DotBytes(_mm256_or_si256(Nibbles(b + 6), FifthBits(b + 2)), x);
  }
};
struct DotQ5_1 {
  static constexpr int kBytes = 24, kMinimum = 2, kOffset = 0;
  static __m256i Dot(const std::byte* b, __m256i x) {
    return DotBytes(_mm256_or_si256(Nibbles(b + 8), FifthBits(b + 4)), x);
  }
};
// Signs move to x, whose codes are never -128; |-128| is 128 as an unsigned byte, and 2 * 128 * 127 fits
// int16.
struct DotQ8_0 {
  static constexpr int kBytes = 34, kMinimum = -1, kOffset = 0;
  static __m256i Dot(const std::byte* b, __m256i x) {
    const __m256i codes = LoadBytes(b + 2);
    return DotBytes(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  }
};

// The fp16 numbers at the same place of eight neighbouring blocks.
template <int kBytes>
inline __m256 BlockFactors(const std::byte* p) {
  short bits[kGroupBlocks];
  for (int i = 0; i < kGroupBlocks; ++i) __builtin_memcpy(bits + i, p + i * kBytes, 2);
  return _mm256_cvtph_ps(
      _mm_setr_epi16(bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]));
}

// Running sums: one chain of FMAs would be slower than memory.
struct BlockSums {
  __m256 s[4];
};

// What the eight blocks at b make with x, added to the sums.
template <typename Format>
[[gnu::always_inline]] inline void AddBlocks(const std::byte* b, const DotGroup& x, BlockSums* sums) {
  const __m256 scale = _mm256_set1_ps(x.scale);
  const __m256 scales = _mm256_mul_ps(BlockFactors<Format::kBytes>(b), scale);
  alignas(32) float factors[kGroupBlocks];
  _mm256_store_ps(factors, scales);
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks; ++i) {
    const __m256i dot = Format::Dot(b + i * Format::kBytes, LoadBytes(x.codes + i * kDotBlock));
    sums->s[i % 4] =
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(factors + i), sums->s[i % 4]);
  }
  if constexpr (Format::kOffset > 0 || Format::kMinimum >= 0) {
    const __m256i low = _mm256_cvtepi16_epi32(LoadHalf(x.sums));
    const __m256i high = _mm256_cvtepi16_epi32(LoadHalf(x.sums + 8));
    const __m256 x_sums = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));  // of the codes of each block
    __m256 minima = _mm256_mul_ps(scales, _mm256_set1_ps(-Format::kOffset));
    if constexpr (Format::kMinimum >= 0) {
      minima = _mm256_mul_ps(BlockFactors<Format::kBytes>(b + Format::kMinimum), scale);
    }
    sums->s[0] = _mm256_fmadd_ps(minima, x_sums, sums->s[0]);
  }
}

template <typename Format>
struct Blocks {
  static __m256 Dot(const std::byte* w, const DotGroup* x, int64_t count) {
    constexpr int64_t kGroupBytes = kGroupBlocks * Format::kBytes;
    BlockSums sums;
    for (__m256& s : sums.s) s = _mm256_setzero_ps();
    int64_t left = count / kDotBlock;
    for (; left >= kGroupBlocks; left -= kGroupBlocks, w += kGroupBytes, ++x) AddBlocks<Format>(w, *x, &sums);
    if (left > 0) {  // behind the end of the row: factors of 0
      std::byte padded[kGroupBytes] = {};
      __builtin_memcpy(padded, w, static_cast<size_t>(left * Format::kBytes));
      AddBlocks<Format>(padded, *x, &sums);
    }
    return _mm256_add_ps(_mm256_add_ps(sums.s[0], sums.s[1]), _mm256_add_ps(sums.s[2], sums.s[3]));
  }
};

// ---- Super-blocks of 256: integer scales of 16 or 32 codes, so that the sum of a whole block is exact (at
// most 2^25: 8 groups of 4 products 63 * 127 * 128). 16 scales stand as the sums of x do: those of the first
// halves of the eight groups of 32 codes in the low half of the vector, those of the second halves in the
// high one.

// Bits of every byte moved from position `from` to `to`; the caller masks what came from the neighbour.
template <int kFrom, int kTo>
inline __m256i MoveBits(__m256i v) {
  if constexpr (kFrom > kTo) return _mm256_srli_epi16(v, kFrom - kTo);
  if constexpr (kFrom < kTo) return _mm256_slli_epi16(v, kTo - kFrom);
  return v;
}
template <int kFrom, int kTo, int kMask>
inline __m256i Bits(const std::byte* p) {
  return _mm256_and_si256(MoveBits<kFrom, kTo>(LoadBytes(p)), _mm256_set1_epi8(static_cast<char>(kMask)));
}

// Scales or minima in the order of the codes, as bytes.
inline __m256i HalvesApart(__m128i bytes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, order));
}

struct SuperScales {
  __m256i scales;
  __m256i minima;
};

// Six bits each, as kernel_quants.inl's ScaleAndMinimum reads them, all at once.
inline SuperScales SixBitScales(const std::byte* s) {
  const uint32_t a = DotWord(s);
  const uint32_t b = DotWord(s + 4);
  const uint32_t c = DotWord(s + 8);
  const uint32_t scales = (c & 0x0f0f0f0f) | ((a >> 2) & 0x30303030);
  const uint32_t minima = ((c >> 4) & 0x0f0f0f0f) | ((b >> 2) & 0x30303030);
  const __m256i all =
      _mm256_cvtepu8_epi16(_mm_setr_epi32(static_cast<int>(a & 0x3f3f3f3f), static_cast<int>(scales),
                                          static_cast<int>(b & 0x3f3f3f3f), static_cast<int>(minima)));
  return {_mm256_permute4x64_epi64(all, 0x44), _mm256_permute4x64_epi64(all, 0xee)};
}

// Each format: bytes, where the factors stand (kMinimum -1: none), the power of two taken from every code (0:
// none), scales, and the codes of group j of 32.
struct DotQ2_K {
  static constexpr int kBytes = 84, kFactor = 80, kMinimum = 82, kOffsetBits = 0;
  static SuperScales Scales(const std::byte* b) {
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i both = LoadHalf(b);
    return {HalvesApart(_mm_and_si128(both, mask)),
            HalvesApart(_mm_and_si128(_mm_srli_epi16(both, 4), mask))};
  }
  template <int j>
  static __m256i Codes(const std::byte* b) {
    return Bits<2 * (j % 4), 0, 3>(b + 16 + 32 * (j / 4));
  }
};

struct DotQ3_K {
  static constexpr int kBytes = 110, kFactor = 108, kMinimum = -1, kOffsetBits = 2;
  static SuperScales Scales(const std::byte* b) {
    const int low0 = static_cast<int>(DotWord(b + 96));
    const int low1 = static_cast<int>(DotWord(b + 100));
    const __m128i low = _mm_srlv_epi32(_mm_setr_epi32(low0, low1, low0, low1), _mm_setr_epi32(0, 0, 4, 4));
    const __m128i top =
        _mm_srlv_epi32(_mm_set1_epi32(static_cast<int>(DotWord(b + 104))), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
                                     _mm_slli_epi16(_mm_and_si128(top, _mm_set1_epi8(3)), 4));
    return {HalvesApart(_mm_sub_epi8(six, _mm_set1_epi8(32))), _mm256_setzero_si256()};
  }
  template <int j>
  static __m256i Codes(const std::byte* b) {
    return _mm256_or_si256(Bits<2 * (j % 4), 0, 3>(b + 32 + 32 * (j / 4)), Bits<j, 2, 4>(b));
  }
};

struct DotQ4_K {
  static constexpr int kBytes = 144, kFactor = 0, kMinimum = 2, kOffsetBits = 0;
  static SuperScales Scales(const std::byte* b) { return SixBitScales(b + 4); }
  template <int j>
  static __m256i Codes(const std::byte* b) {
    return Bits<4 * (j % 2), 0, 15>(b + 16 + 32 * (j / 2));
  }
};

struct DotQ5_K {
  static constexpr int kBytes = 176, kFactor = 0, kMinimum = 2, kOffsetBits = 0;
  static SuperScales Scales(const std::byte* b) { return SixBitScales(b + 4); }
  template <int j>
  static __m256i Codes(const std::byte* b) {
    return _mm256_or_si256(Bits<4 * (j % 2), 0, 15>(b + 48 + 32 * (j / 2)), Bits<j, 4, 16>(b + 16));
  }
};

struct DotQ6_K {
  static constexpr int kBytes = 210, kFactor = 208, kMinimum = -1, kOffsetBits = 5;
  static SuperScales Scales(const std::byte* b) {
    return {HalvesApart(LoadHalf(b + 192)), _mm256_setzero_si256()};
  }
  template <int j>
  static __m256i Codes(const std::byte* b) {
    const __m256i low = Bits<4 * (j % 4 / 2), 0, 15>(b + 64 * (j / 4) + 32 * (j % 2));
    return _mm256_or_si256(low, Bits<2 * (j % 4), 4, 48>(b + 128 + 32 * (j / 4)));
  }
};

// Groups j and j + 4 into two sums, so that the next product need not wait for the last.
template <typename Format, int j>
[[gnu::always_inline]] inline void AddGroups(const std::byte* b, const DotGroup& x, __m256i scales,
                                             __m256i* sums) {
  const auto spread = [&](int at) {  // scale `at` of each half
    return _mm256_shuffle_epi8(scales, _mm256_set1_epi16(static_cast<short>(2 * at | (2 * at + 1) << 8)));
  };
  sums[0] = AddScaled(sums[0], Format::template Codes<j>(b), LoadBytes(x.codes + j * kDotBlock), spread(j));
  sums[1] = AddScaled(sums[1], Format::template Codes<j + 4>(b), LoadBytes(x.codes + (j + 4) * kDotBlock),
                      spread(j + 4));
  if constexpr (j < 3) AddGroups<Format, j + 1>(b, x, scales, sums);
}

template <typename Format>
struct SuperBlocks {
  static __m256 Add(const std::byte* b, const DotGroup& x, __m256 sum) {
    const SuperScales s = Format::Scales(b);
    const __m256i x_sums = LoadBytes(x.sums);
    __m256i dots[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    AddGroups<Format, 0>(b, x, s.scales, dots);
    __m256i dot = _mm256_add_epi32(dots[0], dots[1]);
    if constexpr (Format::kOffsetBits > 0) {
      const __m256i offset = _mm256_madd_epi16(s.scales, x_sums);
      dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(offset, Format::kOffsetBits));
    }
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(DotFactor(b + Format::kFactor) * x.scale),
                          sum);
    if constexpr (Format::kMinimum >= 0) {
      const __m256 below = _mm256_cvtepi32_ps(_mm256_madd_epi16(s.minima, x_sums));
      sum = _mm256_fnmadd_ps(below, _mm256_set1_ps(DotFactor(b + Format::kMinimum) * x.scale), sum);
    }
    return sum;
  }
  static __m256 Dot(const std::byte* w, const DotGroup* x, int64_t count) {
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < count; i += kDotGroup, w += Format::kBytes, ++x) sum = Add(w, *x, sum);
    return sum;
  }
};

// ---- Rows

// One row at a time: the weights are then a single stream, which the hardware's prefetcher follows best, and
// the sums stay in registers.
template <typename Walk>
void IntDot(const IntDotTask& t) {
  for (int64_t row = 0; row < t.rows; ++row) {
    const float sum = SumOf(Walk::Dot(t.w + row * t.w_stride, t.x, t.count));
    t.y[row] = sum + (t.bias == nullptr ? 0.0f : t.bias[row]);
  }
}

constexpr IntDotKernels kIntDots = {
    .quantize = QuantizeDotRow,
    .dot = {nullptr, nullptr, nullptr, IntDot<Blocks<DotQ4_0>>, IntDot<Blocks<DotQ4_1>>,
            IntDot<Blocks<DotQ5_0>>, IntDot<Blocks<DotQ5_1>>, IntDot<Blocks<DotQ8_0>>,
            IntDot<SuperBlocks<DotQ2_K>>, IntDot<SuperBlocks<DotQ3_K>>, IntDot<SuperBlocks<DotQ4_K>>,
            IntDot<SuperBlocks<DotQ5_K>>, IntDot<SuperBlocks<DotQ6_K>>},
};
