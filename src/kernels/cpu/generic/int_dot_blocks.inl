// Blocks of 32 values. Each has its own fp16 factor, so fp32 adds up their integer sums.
//
// Lane b of a row's sums belongs to the blocks whose number in their group of eight is b:
//
//   sum_b = fma(float(dot of the codes), w's factor * x's scale, sum_b)
//   sum_b = fma(w's minimum * x's scale, float(sum of x's codes), sum_b)    if the format has a minimum
//
// group after group. The dot is exact, with the format's offset subtracted from every code. The last group is
// padded with blocks whose factors are 0. SumOf adds up the lanes. Here they are the lanes of one vector; in
// avx512_vnni/int_dot_columns.inl they are eight vectors with a row of weights in each lane.

constexpr int kGroupBlocks = static_cast<int>(kDotGroup / kDotBlock);

// The fp16 numbers at the same offset in eight neighbouring blocks.
template <int kBytes>
inline __m256 BlockFactors(const std::byte* p) {
  return _mm256_cvtph_ps(BlockWords<kBytes>(p));
}

// One vector of integer sums serves blocks i and i + 4 of a group: half of its lanes belong to each. Three
// horizontal additions then turn the four vectors of a group into one, whose lanes are the blocks in order.
// For that, a vector holds 16 codes of both blocks, the order of the layouts for blocks.
struct TwoBlocks {
  __m256i first;  // codes 0 to 15 of block i and of block i + 4
  __m256i last;   // codes 16 to 31
};

template <int kBytes>
inline __m256i BytesOfTwo(const std::byte* p) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadHalf(p)), LoadHalf(p + 4 * kBytes), 1);
}

// Byte i of a block holds the low bits of values i and i + 16.
template <int kBytes>
inline TwoBlocks Nibbles(const std::byte* p) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i both = BytesOfTwo<kBytes>(p);
  return {_mm256_and_si256(both, mask), _mm256_and_si256(_mm256_srli_epi16(both, 4), mask)};
}

// Bit i of the word at p is the fifth bit of value i.
template <int kBytes>
inline TwoBlocks WithFifthBits(const std::byte* p, const TwoBlocks& low) {
  const uint32_t one = DotWord(p);
  const uint32_t other = DotWord(p + 4 * kBytes);
  return {WithSixteens(low.first, (one & 0xffff) | other << 16),
          WithSixteens(low.last, one >> 16 | (other & 0xffff0000))};
}

// Each format: bytes per block; offsets of the minimum, of the fifth bits (-1: none) and of the codes; the
// layout of x; whether codes are signed; the prefetch distance; the codes of a block and of the fourth one
// after it; their products with x.
struct FewBits {
  static constexpr bool kSigned = false;
  static constexpr int64_t kAhead = kDotAhead;
  static __m256i Dot(const TwoBlocks& w, __m256i first, __m256i last) {
    return DotTwo(w.first, first, w.last, last);
  }
};
struct DotQ4_0 : FewBits {
  static constexpr int kBytes = 18, kMinimum = -1, kFifthBits = -1, kCodes = 2;
  static constexpr DotLayout kLayout = DotLayout::kLess8;
  static TwoBlocks Codes(const std::byte* b) { return Nibbles<kBytes>(b + kCodes); }
};
struct DotQ4_1 : FewBits {
  static constexpr int kBytes = 20, kMinimum = 2, kFifthBits = -1, kCodes = 4;
  static constexpr DotLayout kLayout = DotLayout::kSums;
  static TwoBlocks Codes(const std::byte* b) { return Nibbles<kBytes>(b + kCodes); }
};
struct DotQ5_0 : FewBits {
  static constexpr int kBytes = 22, kMinimum = -1, kFifthBits = 2, kCodes = 6;
  static constexpr DotLayout kLayout = DotLayout::kLess16;
  static TwoBlocks Codes(const std::byte* b) {
    return WithFifthBits<kBytes>(b + kFifthBits, Nibbles<kBytes>(b + kCodes));
  }
};
struct DotQ5_1 : FewBits {
  static constexpr int kBytes = 24, kMinimum = 2, kFifthBits = 4, kCodes = 8;
  static constexpr DotLayout kLayout = DotLayout::kSums;
  static TwoBlocks Codes(const std::byte* b) {
    return WithFifthBits<kBytes>(b + kFifthBits, Nibbles<kBytes>(b + kCodes));
  }
};
struct DotQ8_0 {
  static constexpr int kBytes = 34, kMinimum = -1, kFifthBits = -1, kCodes = 2;
  static constexpr DotLayout kLayout = kSignedLayout;
  static constexpr bool kSigned = true;
  static constexpr int64_t kAhead = 0;
  static TwoBlocks Codes(const std::byte* b) {
    return {BytesOfTwo<kBytes>(b + kCodes), BytesOfTwo<kBytes>(b + kCodes + 16)};
  }
  static __m256i Dot(const TwoBlocks& w, __m256i first, __m256i last) {
    return DotTwoSigned(w.first, first, w.last, last);
  }
};

// Codes that are places in a table of signed values.
struct TableCodes {
  static constexpr int kMinimum = -1, kFifthBits = -1;
  static constexpr DotLayout kLayout = kSignedLayout;
  static constexpr bool kSigned = true;
  static constexpr int64_t kAhead = kDotAhead;
  // `nibbles` from the table: values 0 to 7 in the low half, values 8 to 15 in the high half.
  static TwoBlocks LookUp(const TwoBlocks& nibbles, uint64_t low, uint64_t high) {
    const __m256i table = _mm256_setr_epi64x(static_cast<int64_t>(low), static_cast<int64_t>(high),
                                             static_cast<int64_t>(low), static_cast<int64_t>(high));
    return {_mm256_shuffle_epi8(table, nibbles.first), _mm256_shuffle_epi8(table, nibbles.last)};
  }
  static __m256i Dot(const TwoBlocks& w, __m256i first, __m256i last) {
    return DotTwoSigned(w.first, first, w.last, last);
  }
};
// The tables of formats/quant_blocks.h, as little-endian bytes.
struct DotIQ4_NL : TableCodes {
  static constexpr int kBytes = 18, kCodes = 2;
  static constexpr uint64_t kLow = 0xf6eaddcfbfad9881, kHigh = 0x7159453526190d01;
  static TwoBlocks Codes(const std::byte* b) { return LookUp(Nibbles<kBytes>(b + kCodes), kLow, kHigh); }
};
struct DotMXFP4 : TableCodes {
  static constexpr int kBytes = 17, kCodes = 1;
  static constexpr uint64_t kLow = 0x0c08060403020100, kHigh = 0xf4f8fafcfdfeff00;
  static TwoBlocks Codes(const std::byte* b) { return LookUp(Nibbles<kBytes>(b + kCodes), kLow, kHigh); }
  // 2^(e - 128) for the byte e at the beginning of each block.
  static __m256 Factors(const std::byte* b) {
    alignas(8) uint8_t bytes[kGroupBlocks];
    for (int i = 0; i < kGroupBlocks; ++i) bytes[i] = static_cast<uint8_t>(b[i * kBytes]);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one)));
  }
};
// A super-block is a group: eight blocks of 16 bytes behind their factors. kBytes is an eighth of it.
struct DotIQ4_XS : TableCodes {
  static constexpr int kBytes = 17, kCodes = 8, kBlockCodes = 16;
  static constexpr uint64_t kLow = DotIQ4_NL::kLow, kHigh = DotIQ4_NL::kHigh;
  static TwoBlocks CodesOf(const std::byte* b, int i) {
    return LookUp(Nibbles<kBlockCodes>(b + kCodes + i * kBlockCodes), kLow, kHigh);
  }
  static __m256 Factors(const std::byte* b) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i nibbles =
        _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(DotWord(b + 4))), _mm256_slli_epi32(lanes, 2));
    const __m256i pairs =
        _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(DotWord(b) >> 16)), _mm256_slli_epi32(lanes, 1));
    const __m256i scales =
        _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)),
                        _mm256_slli_epi32(_mm256_and_si256(pairs, _mm256_set1_epi32(3)), 4));
    return _mm256_mul_ps(_mm256_set1_ps(DotFactor(b)),
                         _mm256_cvtepi32_ps(_mm256_sub_epi32(scales, _mm256_set1_epi32(32))));
  }
};

// The codes of blocks i and i + 4 of the eight at b.
template <typename Format>
[[gnu::always_inline]] inline TwoBlocks CodesOfTwo(const std::byte* b, int i) {
  if constexpr (requires { Format::CodesOf(b, i); }) {
    return Format::CodesOf(b, i);
  } else {
    return Format::Codes(b + i * Format::kBytes);
  }
}

template <typename Format>
[[gnu::always_inline]] inline __m256 FactorsOf(const std::byte* b) {
  if constexpr (requires { Format::Factors(b); }) {
    return Format::Factors(b);
  } else {
    return BlockFactors<Format::kBytes>(b);
  }
}

// Adds the products of the eight blocks at b with the groups of kRows rows of x to the sums.
template <int kRows, typename Format>
[[gnu::always_inline]] inline void AddBlocks(const std::byte* b, const DotGroup* x, __m256* sums) {
  constexpr int kPairs = kGroupBlocks / 2;
  __m256i dots[kRows][kPairs];
#pragma GCC unroll 4
  for (int i = 0; i < kPairs; ++i) {
    const TwoBlocks codes = CodesOfTwo<Format>(b, i);
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      const int8_t* pair = x[r].codes + 2 * i * kDotBlock;
      dots[r][i] = Format::Dot(codes, LoadBytes(pair), LoadBytes(pair + kDotBlock));
    }
  }
  const __m256 steps = FactorsOf<Format>(b);
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    const DotGroup& group = x[r];
    const __m256 scales = _mm256_load_ps(group.scales);
    __m256i dot = _mm256_hadd_epi32(_mm256_hadd_epi32(dots[r][0], dots[r][1]),
                                    _mm256_hadd_epi32(dots[r][2], dots[r][3]));
    if constexpr (Format::kLayout != DotLayout::kSums)
      dot = _mm256_add_epi32(dot, LoadBytes(group.block_starts));
    sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(steps, scales), sums[r]);
    if constexpr (Format::kMinimum >= 0) {
      const __m256 minima = _mm256_mul_ps(BlockFactors<Format::kBytes>(b + Format::kMinimum), scales);
      sums[r] = _mm256_fmadd_ps(minima, _mm256_load_ps(group.block_sums), sums[r]);
    }
  }
}

// ---- Rows of blocks

// The eight blocks that lie Format::kAhead bytes behind w.
template <typename Format>
inline void PrefetchBlocks(const std::byte* w) {
  if constexpr (Format::kAhead > 0) {
    constexpr int64_t kCacheLine = 64;
    for (int64_t i = 0; i < kGroupBlocks * Format::kBytes; i += kCacheLine)
      __builtin_prefetch(w + Format::kAhead + i, 0, 2);
  }
}

// add(eight blocks, their group of x) for all blocks of a row, whose groups of x are x_step apart.
template <typename Format, typename Add>
[[gnu::always_inline]] inline void ForGroups(const std::byte* w, const DotGroup* x, int64_t x_step,
                                             int64_t count, const Add& add) {
  constexpr int64_t kGroupBytes = kGroupBlocks * Format::kBytes;
  int64_t left = count / kDotBlock;
  for (; left >= kGroupBlocks; left -= kGroupBlocks, w += kGroupBytes, x += x_step) {
    PrefetchBlocks<Format>(w);
    add(w, x);
  }
  if (left > 0) {  // pads the last group with zero factors
    std::byte padded[kGroupBytes] = {};
    __builtin_memcpy(padded, w, static_cast<size_t>(left * Format::kBytes));
    add(padded, x);
  }
}

template <typename Format>
struct Blocks {
  template <int kRows>
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_step, int64_t count,
                                         __m256* y) {
    __m256 sums[kRows];  // local, so that they stay in registers
    for (__m256& s : sums) s = _mm256_setzero_ps();
    ForGroups<Format>(
        w, x, x_step, count, [&](const std::byte* b, const DotGroup* group) __attribute__((always_inline)) {
          AddBlocks<kRows, Format>(b, group, sums);
        });
    for (int r = 0; r < kRows; ++r) y[r] = sums[r];
  }
};
