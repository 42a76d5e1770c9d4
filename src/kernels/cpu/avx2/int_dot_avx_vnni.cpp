// Integer products for AVX-VNNI. Its instruction is written as assembly, so this file needs no compiler flag
// of its own; the caller must check the CPU's feature first.
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

inline __m256i AddBytes(__m256i sums, __m256i codes, __m256i x) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(x));
  return sums;
}

// Lane i: the sum of products 4 i to 4 i + 3 of unsigned and signed bytes.
inline __m256i DotBytes(__m256i codes, __m256i x) { return AddBytes(_mm256_setzero_si256(), codes, x); }

// Lane i: the same for `first` and x plus that for `last` and y.
inline __m256i DotTwo(__m256i first, __m256i x, __m256i last, __m256i y) {
  return AddBytes(DotBytes(first, x), last, y);
}

// The same for signed codes, which become unsigned: each is 128 too large.
constexpr DotLayout kSignedLayout = DotLayout::kLess128;
inline __m256i DotTwoSigned(__m256i first, __m256i x, __m256i last, __m256i y) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  return DotTwo(_mm256_xor_si256(first, flip), x, _mm256_xor_si256(last, flip), y);
}

// sums + the products of DotBytes, each pair of bytes multiplied by its lane of `scales`. The sum of a pair
// must fit int16, which the codes of every format ensure.
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

const IntDotKernels& AvxVnniIntDots() { return kIntDots; }

}  // namespace coppice::cpu
