// Integer products for AVX-512 with VNNI, on 256-bit vectors: memory is slower than they are.
#include <immintrin.h>

#include "kernels/cpu/int_dot.h"

namespace coppice::cpu {
namespace {

// Lane i: products 4 i to 4 i + 3 of unsigned and signed bytes.
inline __m256i DotBytes(__m256i codes, __m256i x) {
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, x);
}

// sums + the same, each pair of bytes times its lane of `scales`. A pair must fit int16: the codes of every
// format do.
inline __m256i AddScaled(__m256i sums, __m256i codes, __m256i x, __m256i scales) {
  return _mm256_dpwssd_epi32(sums, _mm256_maddubs_epi16(codes, x), scales);
}

#include "kernels/cpu/int_dot.inl"

}  // namespace

const IntDotKernels& Avx512VnniIntDots() { return kIntDots; }

}  // namespace coppice::cpu
