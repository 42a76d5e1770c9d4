// Loads and final sums of the integer products; included before the part that the file of the ISA defines.

inline __m256i LoadBytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i LoadHalf(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

inline uint32_t DotWord(const std::byte* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, sizeof w);
  return w;
}

inline float DotFactor(const std::byte* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

inline float SumOf(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The two-byte words at p, p + kBytes, ... of eight neighbouring blocks.
template <int kBytes>
inline __m128i InsertWords(const std::byte* p) {
  const auto word = [p](int i) {
    short w;
    __builtin_memcpy(&w, p + i * kBytes, sizeof w);
    return w;
  };
  return _mm_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}

// 0xff in every byte whose bit is set.
inline __m256i SetBits(uint32_t bits) {
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

// Adds 16 to every code whose bit is set.
inline __m256i SpreadSixteens(__m256i codes, uint32_t bits) {
  return _mm256_or_si256(codes, _mm256_and_si256(SetBits(bits), _mm256_set1_epi8(16)));
}
