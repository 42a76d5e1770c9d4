// Integer products of several rows of x in 512-bit vectors, with the bits of int_dot_blocks.inl and
// int_dot_super.inl: the two vectors of eight lanes that these would add into, or multiply after each other,
// are the halves of one vector. One row waits for memory, several wait for the arithmetic. Included after
// int_dot.inl.

// sums[0]: s[0] and s[1] of BlockSums; sums[1]: s[2] and s[3].
struct WideSums {
  __m512 s[2];
};

struct FourBlocks {
  __m512i first;  // codes 0 to 15 of four neighbouring blocks
  __m512i last;   // codes 16 to 31
};

inline __m512i LoadWide(const void* p) { return _mm512_loadu_si512(p); }

inline __m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

inline FourBlocks FourOf(const TwoBlocks& low, const TwoBlocks& high) {
  return {Join(low.first, high.first), Join(low.last, high.last)};
}

// Lanes: the factors of blocks `at` to `at` + 3, each four times.
inline __m512 FactorsOfFour(__m256 factors, int at) {
  const __m512i lanes = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                         _mm512_set1_epi32(at));
  return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(factors));
}

// The same as AddBlocks.
template <int kRows, typename Format>
[[gnu::always_inline]] inline void AddWideBlocks(const Format*, const std::byte* b, const DotGroup* x,
                                                 int64_t x_stride, WideSums* sums) {
  constexpr int kBytes = Format::kBytes;
  const __m256 steps = BlockFactors<kBytes>(b);
  __m256 factors[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) factors[r] = _mm256_mul_ps(steps, _mm256_load_ps(x[r * x_stride].scales));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const FourBlocks codes =
        FourOf(Format::Codes(b + 4 * i * kBytes), Format::Codes(b + (4 * i + 2) * kBytes));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int8_t* four = x[r * x_stride].codes + 4 * i * kDotBlock;
      const __m512i first = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes.first, LoadWide(four));
      const __m512i dot = _mm512_dpbusd_epi32(first, codes.last, LoadWide(four + 2 * kDotBlock));
      const __m512 each = FactorsOfFour(factors[r], 4 * i);
      sums[r].s[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), each, sums[r].s[i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const DotGroup& group = x[r * x_stride];
    __m256 minima = _mm256_mul_ps(factors[r], _mm256_set1_ps(-Format::kOffset));
    if constexpr (Format::kMinimum >= 0) {
      minima = _mm256_mul_ps(BlockFactors<kBytes>(b + Format::kMinimum), _mm256_load_ps(group.scales));
    }
    const __m512 x_sums = _mm512_castps256_ps512(_mm256_load_ps(group.block_sums));
    sums[r].s[0] = _mm512_mask3_fmadd_ps(_mm512_castps256_ps512(minima), x_sums, sums[r].s[0], 0xff);
  }
}

// Eight bits: x is the unsigned side, as x + 128, and the sums start at -128 times those of the codes.
template <int kRows>
[[gnu::always_inline]] inline void AddWideBlocks(const DotQ8_0*, const std::byte* b, const DotGroup* x,
                                                 int64_t x_stride, WideSums* sums) {
  constexpr int kBytes = DotQ8_0::kBytes;
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m256 steps = BlockFactors<kBytes>(b);
  __m256 factors[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) factors[r] = _mm256_mul_ps(steps, _mm256_load_ps(x[r * x_stride].scales));
#pragma GCC unroll 4
  for (int i = 0; i < kGroupBlocks / 2; ++i) {
    const __m512i codes = Join(LoadBytes(b + 2 * i * kBytes + 2), LoadBytes(b + (2 * i + 1) * kBytes + 2));
    const __m512i offset = _mm512_dpbusd_epi32(_mm512_setzero_si512(), flip, codes);
    const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), offset);
    const __m512i lanes = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                           _mm512_set1_epi32(2 * i));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i two = _mm512_xor_si512(LoadWide(x[r * x_stride].codes + 2 * i * kDotBlock), flip);
      const __m512 each = _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(factors[r]));
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, two, codes));
      sums[r].s[i % 2] = _mm512_fmadd_ps(dot, each, sums[r].s[i % 2]);
    }
  }
}

template <typename Walk>
struct Wide;

template <typename Format>
struct Wide<Blocks<Format>> {
  template <int kRows>
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_stride,
                                         int64_t count, __m256* y) {
    constexpr const Format* kFormat = nullptr;  // selects the overload
    WideSums sums[kRows];
    for (WideSums& row : sums) row.s[0] = row.s[1] = _mm512_setzero_ps();
    ForGroups<Format>(
        w, x, count, [&](const std::byte* b, const DotGroup* group) __attribute__((always_inline)) {
          AddWideBlocks<kRows>(kFormat, b, group, x_stride, sums);
        });
    for (int r = 0; r < kRows; ++r) {
      const auto both = [](__m512 v) {
        return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
      };
      y[r] = _mm256_add_ps(both(sums[r].s[0]), both(sums[r].s[1]));
    }
  }
};

// Groups j and j + 1 of a super-block. Their integer sums are exact, so their order is free.
template <int kRows, typename Format, int j>
[[gnu::always_inline]] inline void AddWideGroups(const std::byte* b, const DotGroup* x, int64_t x_stride,
                                                 __m512i scales, __m512i* sums) {
  const auto at = [](int group) { return static_cast<short>(2 * group | (2 * group + 1) << 8); };
  const __m512i order = Join(_mm256_set1_epi16(at(j)), _mm256_set1_epi16(at(j + 1)));
  const __m512i spread = _mm512_shuffle_epi8(scales, order);
  const __m512i codes = Join(Format::template Codes<j>(b), Format::template Codes<j + 1>(b));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i pairs = _mm512_maddubs_epi16(codes, LoadWide(x[r * x_stride].codes + j * kDotBlock));
    sums[r] = _mm512_dpwssd_epi32(sums[r], pairs, spread);
  }
  if constexpr (j < 6) AddWideGroups<kRows, Format, j + 2>(b, x, x_stride, scales, sums);
}

template <typename Format>
struct Wide<SuperBlocks<Format>> {
  template <int kRows>
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_stride,
                                         int64_t count, __m256* sums) {
    for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_ps();
    for (int64_t i = 0; i < count; i += kDotGroup, w += Format::kBytes, ++x) {
      const SuperScales s = Format::Scales(w);
      __m512i dots[kRows];
      for (__m512i& dot : dots) dot = _mm512_setzero_si512();
      AddWideGroups<kRows, Format, 0>(w, x, x_stride, Join(s.scales, s.scales), dots);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i dot =
            _mm256_add_epi32(_mm512_castsi512_si256(dots[r]), _mm512_extracti64x4_epi64(dots[r], 1));
        sums[r] = SuperBlocks<Format>::AddFactors(w, s, dot, x[r * x_stride], sums[r]);
      }
    }
  }
};

// The walk that takes kRows rows of x through the row of weights.
template <typename Walk, int kRows>
struct WalkOf {
  using Type = Wide<Walk>;
};
template <typename Walk>
struct WalkOf<Walk, 1> {
  using Type = Walk;
};
