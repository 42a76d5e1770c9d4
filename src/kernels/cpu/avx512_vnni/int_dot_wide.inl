// Integer products of two rows of x with super-blocks in 512-bit vectors, with the bits of
// int_dot_super.inl: the two vectors that it multiplies after each other are the halves of one. One row waits
// for memory, two wait for the arithmetic. Included after int_dot.inl.

inline __m512i LoadWide(const void* p) { return _mm512_loadu_si512(p); }

inline __m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Groups j and j + 1 of a super-block. Their integer sums are exact, so their order is free.
template <int kRows, typename Format, int j>
[[gnu::always_inline]] inline void AddWideGroups(const std::byte* b, const DotGroup* x, __m512i scales,
                                                 __m512i* sums) {
  const auto at = [](int group) { return static_cast<short>(2 * group | (2 * group + 1) << 8); };
  const __m512i order = Join(_mm256_set1_epi16(at(j)), _mm256_set1_epi16(at(j + 1)));
  const __m512i spread = _mm512_shuffle_epi8(scales, order);
  const __m512i codes =
      Join(Format::template Codes<j>(RowBytes{b}), Format::template Codes<j + 1>(RowBytes{b}));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i pairs = _mm512_maddubs_epi16(codes, LoadWide(x[r].codes + j * kDotBlock));
    sums[r] = _mm512_dpwssd_epi32(sums[r], pairs, spread);
  }
  if constexpr (j < 6) AddWideGroups<kRows, Format, j + 2>(b, x, scales, sums);
}

template <typename Format>
struct WideSuperBlocks {
  template <int kRows>
  [[gnu::always_inline]] static void Dot(const std::byte* w, const DotGroup* x, int64_t x_step, int64_t count,
                                         __m256* sums) {
    for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_ps();
    for (int64_t i = 0; i < count; i += kDotGroup, w += Format::kBytes, x += x_step) {
      const SuperScales s = Format::Scales(w);
      __m512i dots[kRows];
      for (__m512i& dot : dots) dot = _mm512_setzero_si512();
      AddWideGroups<kRows, Format, 0>(w, x, Join(s.scales, s.scales), dots);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i dot =
            _mm256_add_epi32(_mm512_castsi512_si256(dots[r]), _mm512_extracti64x4_epi64(dots[r], 1));
        sums[r] = SuperBlocks<Format>::AddFactors(w, s, dot, x[r], sums[r]);
      }
    }
  }
};

// Two rows of blocks take columns.
template <typename Walk>
constexpr bool kTakesPairs = true;
template <typename Format>
constexpr bool kTakesPairs<Blocks<Format>> = false;

// The walk that takes kRows rows of x through the row of weights.
template <typename Walk, int kRows>
struct WalkOf;
template <typename Format, int kRows>
struct WalkOf<SuperBlocks<Format>, kRows> {
  using Type = WideSuperBlocks<Format>;
};
template <typename Walk>
struct WalkOf<Walk, 1> {
  using Type = Walk;
};
template <typename Format>
struct WalkOf<SuperBlocks<Format>, 1> {
  using Type = SuperBlocks<Format>;
};
