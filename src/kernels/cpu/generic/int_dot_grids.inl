// The formats of iq_formats.inl as super-blocks. Their codes are looked up, not moved, so they have no bytes
// that ColumnBytes could read: CodesOfGroup has the codes of a group of one row.

template <typename Grid>
struct DotGrid {
  static constexpr int kBytes = Grid::kBytes, kFactor = 0, kMinimum = -1, kOffsetBits = 6;
  static constexpr float kUnit = Grid::kUnit;
  static SuperScales Scales(const std::byte* b) {
    const __m128i both = _mm_cvtsi64_si128(static_cast<int64_t>(Grid::ScaleNibbles(b)));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i halves =
        _mm_unpacklo_epi64(_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16(both, 4), mask));
    const __m128i odd = _mm_or_si128(_mm_add_epi8(halves, halves), _mm_set1_epi8(1));
    return {_mm256_cvtepi8_epi16(odd), _mm256_setzero_si256()};
  }
  // Group j of 32 codes, with 64 added.
  static __m256i CodesOfGroup(const std::byte* b, int j) {
    const auto eight = [&](int k) { return static_cast<int64_t>(Grid::Eight(b, j, k)); };
    const __m256i magnitudes = _mm256_setr_epi64x(eight(0), eight(1), eight(2), eight(3));
    const __m256i negative = SetBits(Grid::Signs(b, j));
    const __m256i codes = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative);
    return _mm256_add_epi8(codes, _mm256_set1_epi8(64));
  }
  template <int j>
  static __m256i Codes(const RowBytes& b) {
    return CodesOfGroup(b.block, j);
  }
};

using DotIQ2_XXS = DotGrid<GridIQ2_XXS>;
using DotIQ2_XS = DotGrid<GridIQ2_XS>;
using DotIQ2_S = DotGrid<GridIQ2_S>;
using DotIQ3_XXS = DotGrid<GridIQ3_XXS>;
using DotIQ3_S = DotGrid<GridIQ3_S>;
