// Blocks of 32 values. Each has its own fp16 factor, so fp32 adds up their integer sums.

constexpr int kGroupBlocks = static_cast<int>(kDotGroup / kDotBlock);

// Several running sums: a single chain of FMAs would be slower than memory.
struct BlockSums {
  __m256 s[4];
};

// The fp16 numbers at the same offset in eight neighbouring blocks.
template <int kBytes>
inline __m256 BlockFactors(const std::byte* p) {
  return _mm256_cvtph_ps(BlockWords<kBytes>(p));
}

// ---- Four and five bits. Byte i of a block holds values i and i + 16. The low halves of the bytes of two
// blocks are therefore the first 16 codes of both, and the high halves the last 16: the order of
// DotLayout::kHalved. One vector of integer sums then serves two blocks, which halves its conversion and
// scaling; those cost as much as the products.

struct TwoBlocks {
  __m256i first;  // codes 0 to 15 of one block and of the next
  __m256i last;   // codes 16 to 31
};

template <int kBytes>
inline __m256i BytesOfTwo(const std::byte* p) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadHalf(p)), LoadHalf(p + kBytes), 1);
}

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
  const uint32_t next = DotWord(p + kBytes);
  return {WithSixteens(low.first, (one & 0xffff) | next << 16),
          WithSixteens(low.last, one >> 16 | (next & 0xffff0000))};
}

// Each format: bytes per block, offset of the minimum (-1: none), the offset subtracted from every code, the
// prefetch distance, and the codes of two blocks.
struct DotQ4_0 {
  static constexpr int kBytes = 18, kMinimum = -1, kOffset = 8;
  static constexpr int64_t kAhead = kDotAhead;
  static TwoBlocks Codes(const std::byte* b) { return Nibbles<kBytes>(b + 2); }
};
struct DotQ4_1 {
  static constexpr int kBytes = 20, kMinimum = 2, kOffset = 0;
  static constexpr int64_t kAhead = kDotAhead;
  static TwoBlocks Codes(const std::byte* b) { return Nibbles<kBytes>(b + 4); }
};
struct DotQ5_0 {
  static constexpr int kBytes = 22, kMinimum = -1, kOffset = 16;
  static constexpr int64_t kAhead = kDotAhead;
  static TwoBlocks Codes(const std::byte* b) { return WithFifthBits<kBytes>(b + 2, Nibbles<kBytes>(b + 6)); }
};
struct DotQ5_1 {
  static constexpr int kBytes = 24, kMinimum = 2, kOffset = 0;
  static constexpr int64_t kAhead = kDotAhead;
  static TwoBlocks Codes(const std::byte* b) { return WithFifthBits<kBytes>(b + 4, Nibbles<kBytes>(b + 8)); }
};

// Adds the products of the eight blocks at b with kRows rows of x, `x_stride` groups apart, to the sums.
template <int kRows, typename Format>
[[gnu::always_inline]] inline void AddBlocks(const Format*, const std::byte* b, const DotGroup* x,
                                             int64_t x_stride, BlockSums* sums) {
  constexpr int kBytes = Format::kBytes;
  const __m256 steps = BlockFactors<kBytes>(b);
  __m256 factors[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) factors[r] = _mm256_mul_ps(steps, _mm256_load_ps(x[r * x_stride].scales));
#pragma GCC unroll 4
  for (int i = 0; i < kGroupBlocks / 2; ++i) {
    const TwoBlocks codes = Format::Codes(b + 2 * i * kBytes);
    const int a = 2 * i;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int8_t* pair = x[r * x_stride].codes + (i / 2 * 4 + i % 2) * kDotBlock;
      const __m256i dot = DotTwo(codes.first, LoadBytes(pair), codes.last, LoadBytes(pair + 2 * kDotBlock));
      const __m256 each =
          _mm256_permutevar8x32_ps(factors[r], _mm256_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1));
      sums[r].s[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), each, sums[r].s[i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const DotGroup& group = x[r * x_stride];
    __m256 minima = _mm256_mul_ps(factors[r], _mm256_set1_ps(-Format::kOffset));
    if constexpr (Format::kMinimum >= 0) {
      minima = _mm256_mul_ps(BlockFactors<kBytes>(b + Format::kMinimum), _mm256_load_ps(group.scales));
    }
    sums[r].s[0] = _mm256_fmadd_ps(minima, _mm256_load_ps(group.block_sums), sums[r].s[0]);
  }
}

// ---- Eight bits: the codes are signed, like x. The sign of a code moves to x, whose codes are never -128.
// |-128| is 128 as an unsigned byte, and 2 * 128 * 127 fits int16.

struct DotQ8_0 {
  static constexpr int kBytes = 34;
  static constexpr int64_t kAhead = 0;
};

template <int kRows>
[[gnu::always_inline]] inline void AddBlocks(const DotQ8_0*, const std::byte* b, const DotGroup* x,
                                             int64_t x_stride, BlockSums* sums) {
  constexpr int kBytes = DotQ8_0::kBytes;
  const __m256 steps = BlockFactors<kBytes>(b);
  alignas(32) float factors[kRows][kGroupBlocks];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    _mm256_store_ps(factors[r], _mm256_mul_ps(steps, _mm256_load_ps(x[r * x_stride].scales)));
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks; ++i) {
    const __m256i codes = LoadBytes(b + i * kBytes + 2);
    const __m256i magnitudes = _mm256_abs_epi8(codes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i signed_x = _mm256_sign_epi8(LoadBytes(x[r * x_stride].codes + i * kDotBlock), codes);
      const __m256 dot = _mm256_cvtepi32_ps(DotBytes(magnitudes, signed_x));
      sums[r].s[i % 4] = _mm256_fmadd_ps(dot, _mm256_broadcast_ss(factors[r] + i), sums[r].s[i % 4]);
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

// add(eight blocks, their group of x) for all blocks of a row.
template <typename Format, typename Add>
[[gnu::always_inline]] inline void ForGroups(const std::byte* w, const DotGroup* x, int64_t count,
                                             const Add& add) {
  constexpr int64_t kGroupBytes = kGroupBlocks * Format::kBytes;
  int64_t left = count / kDotBlock;
  for (; left >= kGroupBlocks; left -= kGroupBlocks, w += kGroupBytes, ++x) {
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
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_stride,
                                         int64_t count, __m256* y) {
    constexpr const Format* kFormat = nullptr;  // selects the overload
    BlockSums sums[kRows];
    for (BlockSums& row : sums) {
      for (__m256& s : row.s) s = _mm256_setzero_ps();
    }
    ForGroups<Format>(
        w, x, count, [&](const std::byte* b, const DotGroup* group) __attribute__((always_inline)) {
          AddBlocks<kRows>(kFormat, b, group, x_stride, sums);
        });
    for (int r = 0; r < kRows; ++r) {
      const __m256* s = sums[r].s;
      y[r] = _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]));
    }
  }
};
