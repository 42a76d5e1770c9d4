// Integer products over quantised blocks, except for the byte products and the gathering of factors: the file
// of the ISA defines those, using int_dot_loads.inl, before it includes this. Layouts: ggml's block_*
// structs, as in kernel_quants.inl.

// ---- x

struct DotScale {
  float scale;
  float inverse;
};

// The scale of `count` values, a multiple of 8.
inline DotScale ScaleOf(const float* x, int64_t count) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 largest = _mm256_setzero_ps();
  // Accumulates 0 * x: NaN for NaN and infinity, which a maximum may lose.
  __m256 finite = _mm256_setzero_ps();
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    largest = _mm256_max_ps(largest, _mm256_and_ps(v, magnitude));
    finite = _mm256_fmadd_ps(v, _mm256_setzero_ps(), finite);
  }
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  const float most = _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
  constexpr float kTiny = 1e-30f;  // 127 / most must stay finite
  return {most / 127.0f + SumOf(finite), most > kTiny ? 127.0f / most : 0.0f};
}

inline __m256i RoundedCodes(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));  // to nearest even
}

inline __m256i BlockCodes(const float* x, __m256 inverse) {
  const __m256i a = _mm256_packs_epi32(RoundedCodes(x, inverse), RoundedCodes(x + 8, inverse));
  const __m256i b = _mm256_packs_epi32(RoundedCodes(x + 16, inverse), RoundedCodes(x + 24, inverse));
  // The packs work within 128-bit halves, so words of four codes come out as 0 2 4 6 1 3 5 7.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// What codes of w are too large by.
constexpr int32_t OffsetOf(DotLayout layout) {
  if (layout == DotLayout::kLess8) return 8;
  if (layout == DotLayout::kLess16) return 16;
  return layout == DotLayout::kLess128 ? 128 : 0;
}

// Stores the codes of block j of the group, and their sums.
inline void StoreCodes(__m256i codes, int64_t j, DotLayout layout, DotGroup* group) {
  constexpr int64_t kHalf = kDotBlock / 2;
  const bool halved = layout != DotLayout::kSuper;
  int8_t* first = group->codes + (halved ? j % 4 * 2 * kDotBlock + j / 4 * kHalf : j * kDotBlock);
  int8_t* last = first + (halved ? kDotBlock : kHalf);
  _mm_store_si128(reinterpret_cast<__m128i*>(first), _mm256_castsi256_si128(codes));
  _mm_store_si128(reinterpret_cast<__m128i*>(last), _mm256_extracti128_si256(codes, 1));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  sums = _mm256_add_epi32(sums, _mm256_srli_epi64(sums, 32));
  sums = _mm256_add_epi32(sums, _mm256_unpackhi_epi64(sums, sums));
  const auto first_sum = static_cast<int16_t>(_mm256_extract_epi16(sums, 0));
  const auto last_sum = static_cast<int16_t>(_mm256_extract_epi16(sums, 8));
  const int32_t sum = first_sum + last_sum;
  if (layout == DotLayout::kSums) {
    group->block_sums[j] = static_cast<float>(sum);
  } else if (halved) {
    group->block_starts[j] = -OffsetOf(layout) * sum;
  } else {
    group->sums[j] = first_sum;
    group->sums[8 + j] = last_sum;
  }
}

void QuantizeGroup(const float* x, int64_t count, DotLayout layout, DotGroup* group) {
  const bool by_block = layout != DotLayout::kSuper;
  DotScale scale = {};
  if (!by_block) {
    scale = ScaleOf(x, count);
    group->scale = scale.scale;
  }
  for (int64_t j = 0; j < kDotGroup / kDotBlock; ++j) {
    const float* block = x + j * kDotBlock;
    const bool exists = j * kDotBlock < count;
    if (by_block) {
      scale = exists ? ScaleOf(block, kDotBlock) : DotScale{};
      group->scales[j] = scale.scale;
    }
    StoreCodes(exists ? BlockCodes(block, _mm256_set1_ps(scale.inverse)) : _mm256_setzero_si256(), j, layout,
               group);
  }
}

void QuantizeDotRow(const float* x, int64_t count, DotLayout layout, DotGroup* groups, int64_t step) {
  for (int64_t i = 0; i < count; i += kDotGroup, groups += step) {
    QuantizeGroup(x + i, count - i < kDotGroup ? count - i : kDotGroup, layout, groups);
  }
}

// Each file depends on those before it.
// clang-format off
#include "kernels/cpu/generic/int_dot_blocks.inl"
#include "kernels/cpu/generic/int_dot_super.inl"
#include "kernels/cpu/generic/iq_formats.inl"
#include "kernels/cpu/generic/int_dot_grids.inl"
// clang-format on
