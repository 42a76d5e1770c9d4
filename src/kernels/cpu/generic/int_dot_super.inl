// ---- Super-blocks of 256 values, with an integer scale per 16 or 32 codes. The sum of a whole block is
// exact: at most 2^25 per lane, 8 groups of 4 products 63 * 127 * 128. The 16 scales have the order of x's
// sums: those of the first halves of the eight groups of 32 codes are in the low half of the vector, those of
// the second halves in the high half.

// Bits kFrom, kFrom + 1, ... of every byte, moved to kTo; kMask says which to keep there.
template <int kFrom, int kTo, int kMask>
inline __m256i MoveBits(__m256i v) {
  if constexpr (kFrom > kTo) v = _mm256_srli_epi16(v, kFrom - kTo);
  if constexpr (kFrom < kTo) v = _mm256_slli_epi16(v, kTo - kFrom);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(kMask)));
}

// A block as the formats' codes read it: 32 bytes from an offset on. The products of several rows read other
// vectors (avx512_vnni/int_dot_super_columns.inl).
struct RowBytes {
  const std::byte* block;
  template <int kFrom, int kTo, int kMask>
  __m256i Bits(int offset) const {
    return MoveBits<kFrom, kTo, kMask>(LoadBytes(block + offset));
  }
  static __m256i Or(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
};

// Scales or minima in the order of DotGroup::sums.
inline __m256i HalvesApart(__m128i bytes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, order));
}

struct SuperScales {
  __m256i scales;
  __m256i minima;
};

// Six-bit scales and minima, as in ScaleAndMinimum of kernel_quants.inl, but all at once. Words a, b and c
// follow d and dmin.
inline SuperScales SixBitScales(const std::byte* b) {
  const __m128i words = LoadHalf(b);
  const __m128i ab = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0xa5), _mm_setr_epi32(0, 2, 0, 2));  // a a b b
  const __m128i c = _mm_srlv_epi32(_mm_shuffle_epi32(words, 0xff), _mm_setr_epi32(0, 0, 0, 4));
  const __m128i upper = _mm_and_si128(ab, _mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030));
  const __m128i lower = _mm_and_si128(c, _mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f));
  const __m256i all = _mm256_cvtepu8_epi16(_mm_or_si128(upper, lower));
  return {_mm256_permute4x64_epi64(all, 0x44), _mm256_permute4x64_epi64(all, 0xee)};
}

// Each format: bytes per block, offsets of the factors (kMinimum -1: none), log2 of the offset subtracted
// from every code (0: none), where the bytes of codes begin and end, scales, and the codes of group j of 32.
struct DotQ2_K {
  static constexpr int kBytes = 84, kFactor = 80, kMinimum = 82, kOffsetBits = 0;
  static constexpr int kCodes = 16, kCodesEnd = 80;
  static SuperScales Scales(const std::byte* b) {
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i both = LoadHalf(b);
    return {HalvesApart(_mm_and_si128(both, mask)),
            HalvesApart(_mm_and_si128(_mm_srli_epi16(both, 4), mask))};
  }
  template <int j, typename Bytes>
  static auto Codes(const Bytes& b) {
    return b.template Bits<2 * (j % 4), 0, 3>(16 + 32 * (j / 4));
  }
};

struct DotQ3_K {
  static constexpr int kBytes = 110, kFactor = 108, kMinimum = -1, kOffsetBits = 2;
  static constexpr int kCodes = 0, kCodesEnd = 96;
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
  template <int j, typename Bytes>
  static auto Codes(const Bytes& b) {
    return Bytes::Or(b.template Bits<2 * (j % 4), 0, 3>(32 + 32 * (j / 4)), b.template Bits<j, 2, 4>(0));
  }
};

struct DotQ4_K {
  static constexpr int kBytes = 144, kFactor = 0, kMinimum = 2, kOffsetBits = 0;
  static constexpr int kCodes = 16, kCodesEnd = 144;
  static SuperScales Scales(const std::byte* b) { return SixBitScales(b); }
  template <int j, typename Bytes>
  static auto Codes(const Bytes& b) {
    return b.template Bits<4 * (j % 2), 0, 15>(16 + 32 * (j / 2));
  }
};

struct DotQ5_K {
  static constexpr int kBytes = 176, kFactor = 0, kMinimum = 2, kOffsetBits = 0;
  static constexpr int kCodes = 16, kCodesEnd = 176;
  static SuperScales Scales(const std::byte* b) { return SixBitScales(b); }
  template <int j, typename Bytes>
  static auto Codes(const Bytes& b) {
    return Bytes::Or(b.template Bits<4 * (j % 2), 0, 15>(48 + 32 * (j / 2)), b.template Bits<j, 4, 16>(16));
  }
};

struct DotQ6_K {
  static constexpr int kBytes = 210, kFactor = 208, kMinimum = -1, kOffsetBits = 5;
  static constexpr int kCodes = 0, kCodesEnd = 192;
  static SuperScales Scales(const std::byte* b) {
    return {HalvesApart(LoadHalf(b + 192)), _mm256_setzero_si256()};
  }
  template <int j, typename Bytes>
  static auto Codes(const Bytes& b) {
    const auto low = b.template Bits<4 * (j % 4 / 2), 0, 15>(64 * (j / 4) + 32 * (j % 2));
    return Bytes::Or(low, b.template Bits<2 * (j % 4), 4, 48>(128 + 32 * (j / 4)));
  }
};

// Adds groups j and j + 4 to two sums of each row of x, so that a product need not wait for the previous one.
template <int kRows, typename Format, int j>
[[gnu::always_inline]] inline void AddGroups(const std::byte* b, const DotGroup* x, __m256i scales,
                                             __m256i (*sums)[2]) {
  const auto spread = [&](int at) {  // scale `at` of each half
    return _mm256_shuffle_epi8(scales, _mm256_set1_epi16(static_cast<short>(2 * at | (2 * at + 1) << 8)));
  };
  const __m256i near = Format::template Codes<j>(RowBytes{b});
  const __m256i far = Format::template Codes<j + 4>(RowBytes{b});
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const int8_t* codes = x[r].codes;
    sums[r][0] = AddScaled(sums[r][0], near, LoadBytes(codes + j * kDotBlock), spread(j));
    sums[r][1] = AddScaled(sums[r][1], far, LoadBytes(codes + (j + 4) * kDotBlock), spread(j + 4));
  }
  if constexpr (j < 3) AddGroups<kRows, Format, j + 1>(b, x, scales, sums);
}

// What a format's factor is multiplied by.
template <typename Format>
constexpr float kUnitOf = 1;
template <typename Format>
requires requires { Format::kUnit; }
constexpr float kUnitOf<Format> = Format::kUnit;

template <typename Format>
struct SuperBlocks {
  // sum + the products of the block with x, of whose codes `dot` holds the products.
  [[gnu::always_inline]] static __m256 AddFactors(const std::byte* b, const SuperScales& s, __m256i dot,
                                                  const DotGroup& x, __m256 sum) {
    const __m256i x_sums = LoadBytes(x.sums);
    if constexpr (Format::kOffsetBits > 0) {
      const __m256i offset = _mm256_madd_epi16(s.scales, x_sums);
      dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(offset, Format::kOffsetBits));
    }
    const __m256 products = _mm256_cvtepi32_ps(dot);
    if constexpr (Format::kMinimum < 0) {
      const float step = DotFactor(b + Format::kFactor) * kUnitOf<Format>;
      return _mm256_fmadd_ps(products, _mm256_set1_ps(step * x.scale), sum);
    } else {
      static_assert(Format::kMinimum == Format::kFactor + 2);
      const __m128i word = _mm_cvtsi32_si128(static_cast<int>(DotWord(b + Format::kFactor)));
      const __m128 both = _mm_mul_ps(_mm_cvtph_ps(word), _mm_set1_ps(x.scale));
      const __m256 below = _mm256_cvtepi32_ps(_mm256_madd_epi16(s.minima, x_sums));
      sum = _mm256_fmadd_ps(products, _mm256_broadcastss_ps(both), sum);
      return _mm256_fnmadd_ps(below, _mm256_broadcastss_ps(_mm_movehdup_ps(both)), sum);
    }
  }
  template <int kRows>
  [[gnu::always_inline]] static void Add(const std::byte* b, const DotGroup* x, __m256* sums) {
    const SuperScales s = Format::Scales(b);
    __m256i dots[kRows][2];
    for (auto& two : dots) two[0] = two[1] = _mm256_setzero_si256();
    AddGroups<kRows, Format, 0>(b, x, s.scales, dots);
    for (int r = 0; r < kRows; ++r) {
      sums[r] = AddFactors(b, s, _mm256_add_epi32(dots[r][0], dots[r][1]), x[r], sums[r]);
    }
  }
  template <int kRows>
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_step, int64_t count,
                                         __m256* sums) {
    for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_ps();
    for (int64_t i = 0; i < count; i += kDotGroup, w += Format::kBytes, x += x_step) Add<kRows>(w, x, sums);
  }
};
