// Integer products for AVX-512 with VNNI, on 256-bit vectors, which are already faster than memory.
#include <immintrin.h>

#include "kernels/cpu/int_dot.h"

namespace coppice::cpu {
namespace {

#include "kernels/cpu/generic/int_dot_loads.inl"

// How far ahead blocks of four and five bits are prefetched into L2. Beyond the end of a mapped file, a
// prefetch does nothing. Zen 4, Q4_0 in a mapped file, two threads, rows of 2048: 30 GB/s without, 39 with,
// about the same for 8 to 32 kB. The loads of BlockWords, of two cache lines each, hide the stream from the
// hardware prefetcher. The other types have no such loads and would lose up to a fifth.
constexpr int64_t kDotAhead = 16384;

// Two loads and one permutation, if two vectors of 32 words, one from the first number on and one that ends
// with the last, hold all eight numbers. Eight loads and insertions are as slow as the products.
template <int kBytes>
inline __m128i BlockWords(const std::byte* p) {
  constexpr int kStep = kBytes / 2;
  constexpr int kWords = 32;  // per vector
  constexpr int kNext =
      7 * kStep < 2 * kWords ? kWords : 7 * kStep - kWords + 1;  // the first word of the second vector
  if constexpr (kBytes % 2 != 0 || 3 * kStep >= kWords || 4 * kStep < kNext) {
    return InsertWords<kBytes>(p);
  } else {
    const auto at = [](int i) {
      const int word = i * kStep;
      return static_cast<short>(word < kWords ? word : word - kNext + kWords);
    };
    const __m128i places = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    const __m512i words = _mm512_permutex2var_epi16(_mm512_loadu_si512(p), _mm512_castsi128_si512(places),
                                                    _mm512_loadu_si512(p + 2 * kNext));
    return _mm512_castsi512_si128(words);
  }
}

// Adds 16 to every code whose bit is set.
inline __m256i WithSixteens(__m256i codes, uint32_t bits) {
  return _mm256_mask_add_epi8(codes, bits, codes, _mm256_set1_epi8(16));
}

// Lane i: the sum of products 4 i to 4 i + 3 of unsigned and signed bytes.
inline __m256i DotBytes(__m256i codes, __m256i x) {
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, x);
}

// Lane i: the same for `first` and x plus that for `last` and y.
inline __m256i DotTwo(__m256i first, __m256i x, __m256i last, __m256i y) {
  return _mm256_dpbusd_epi32(DotBytes(first, x), last, y);
}

// sums + the products of DotBytes, each pair of bytes multiplied by its lane of `scales`. The sum of a pair
// must fit int16, which the codes of every format ensure.
inline __m256i AddScaled(__m256i sums, __m256i codes, __m256i x, __m256i scales) {
  return _mm256_dpwssd_epi32(sums, _mm256_maddubs_epi16(codes, x), scales);
}

#include "kernels/cpu/generic/int_dot.inl"

}  // namespace

const IntDotKernels& Avx512VnniIntDots() { return kIntDots; }

}  // namespace coppice::cpu
