// Integer products for AVX2, and for AVX-512 without VNNI.
#include <immintrin.h>

#include "kernels/cpu/int_dot.h"

namespace coppice::cpu {
namespace {

#include "kernels/cpu/generic/int_dot_loads.inl"

constexpr int64_t kDotAhead = 0;  // the hardware prefetcher does as well

template <int kBytes>
inline __m128i BlockWords(const std::byte* p) {
  return InsertWords<kBytes>(p);
}

inline __m256i WithSixteens(__m256i codes, uint32_t bits) { return SpreadSixteens(codes, bits); }

// Lane i: the sum of products 4 i to 4 i + 3 of unsigned and signed bytes. The sum of a pair must fit int16,
// which the codes of every format ensure.
inline __m256i DotBytes(__m256i codes, __m256i x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
}

// Lane i: the same for `first` and x plus that for `last` and y. The sum of four products must fit int16,
// which codes below 32 ensure.
inline __m256i DotTwo(__m256i first, __m256i x, __m256i last, __m256i y) {
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(first, x), _mm256_maddubs_epi16(last, y));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// The same for signed codes. The sign of a code moves to x, whose codes are never -128; |-128| is 128 as an
// unsigned byte.
constexpr DotLayout kSignedLayout = DotLayout::kSums;
inline __m256i DotTwoSigned(__m256i first, __m256i x, __m256i last, __m256i y) {
  const __m256i one = DotBytes(_mm256_abs_epi8(first), _mm256_sign_epi8(x, first));
  return _mm256_add_epi32(one, DotBytes(_mm256_abs_epi8(last), _mm256_sign_epi8(y, last)));
}

// sums + the products of DotBytes, each pair of bytes multiplied by its lane of `scales`.
inline __m256i AddScaled(__m256i sums, __m256i codes, __m256i x, __m256i scales) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), scales));
}

#include "kernels/cpu/generic/int_dot.inl"

template <typename Walk, int kRows>
struct WalkOf {
  using Type = Walk;
};

template <typename Walk>
constexpr bool kTakesPairs = true;

template <typename Walk>
inline bool TakesColumns(const IntDotTask&) {
  return false;
}

#include "kernels/cpu/generic/int_dot_table.inl"

}  // namespace

const IntDotKernels& Avx2IntDots() { return kIntDots; }

}  // namespace coppice::cpu
