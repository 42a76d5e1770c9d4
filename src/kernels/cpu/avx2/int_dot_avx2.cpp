// Integer products for AVX2, and for AVX-512 without VNNI.
#include <immintrin.h>

#include "kernels/cpu/int_dot.h"

namespace coppice::cpu {
namespace {

// Lane i: products 4 i to 4 i + 3 of unsigned and signed bytes. A pair must fit int16: the codes of every
// format do.
inline __m256i DotBytes(__m256i codes, __m256i x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
}

// sums + the same, each pair of bytes times its lane of `scales`.
inline __m256i AddScaled(__m256i sums, __m256i codes, __m256i x, __m256i scales) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), scales));
}

#include "kernels/cpu/int_dot.inl"

}  // namespace

const IntDotKernels& Avx2IntDots() { return kIntDots; }

}  // namespace coppice::cpu
