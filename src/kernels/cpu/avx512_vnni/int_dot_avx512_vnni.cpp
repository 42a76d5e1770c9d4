// Integer products for AVX-512 with VNNI. One row of x takes 256-bit vectors, with which memory already
// limits the speed; several take 512-bit vectors, whose lanes are rows of weights.
#include <immintrin.h>

#include "kernels/cpu/int_dot.h"

namespace coppice::cpu {
namespace {

#include "kernels/cpu/generic/int_dot_loads.inl"

// How far ahead blocks of four and five bits are prefetched into L2. Beyond the end of a mapped file, a
// prefetch does nothing. Zen 4, Q4_0 in a mapped file, two threads, rows of 2048: 30 GB/s without
// prefetching, 39 GB/s with it, about the same for distances of 8 to 32 kB. The loads of BlockWords touch two
// cache lines each, which hides the stream from the hardware prefetcher. The other types have no such loads;
// prefetching would slow them by up to a fifth there. On Intel's CPUs see IntDotTask::ahead.
constexpr int64_t kDotAhead = 16384;

// Returns what InsertWords returns. Its eight loads and insertions take as long as the products, so this uses
// two loads and one permutation if two vectors of 32 words contain all eight numbers: the first begins with
// the first number, the second follows it or ends with the last number.
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

// The same for signed codes, which become unsigned: each is 128 too large.
constexpr DotLayout kSignedLayout = DotLayout::kLess128;
inline __m256i DotTwoSigned(__m256i first, __m256i x, __m256i last, __m256i y) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  return DotTwo(_mm256_xor_si256(first, flip), x, _mm256_xor_si256(last, flip), y);
}

// sums + the products of DotBytes, each pair of bytes multiplied by its lane of `scales`. The sum of a pair
// must fit int16, which the codes of every format ensure. Written as assembly because GCC 12 copies sums
// between registers around its own intrinsic.
inline __m256i AddScaled(__m256i sums, __m256i codes, __m256i x, __m256i scales) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(_mm256_maddubs_epi16(codes, x)), "v"(scales));
  return sums;
}

#include "kernels/cpu/generic/int_dot.inl"

// Each file depends on those before it.
// clang-format off
#include "kernels/cpu/avx512_vnni/int_dot_columns.inl"
#include "kernels/cpu/avx512_vnni/int_dot_super_columns.inl"
#include "kernels/cpu/avx512_vnni/int_dot_wide.inl"
// clang-format on

#include "kernels/cpu/generic/int_dot_table.inl"

}  // namespace

const IntDotKernels& Avx512VnniIntDots() { return kIntDots; }

}  // namespace coppice::cpu
