// A vector of eight floats: AVX2, FMA and F16C.
struct V {
  static constexpr int kLanes = 8;
  __m256 v;

  static V Set(float a) { return {_mm256_set1_ps(a)}; }
  static V Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static V LoadF16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static V LoadBf16(const uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  static void LoadTwoF16(const uint16_t* p, V* two) {
    two[0] = LoadF16(p);
    two[1] = LoadF16(p + kLanes);
  }
  // Splits 2 * kLanes values into those with even indices and those with odd ones.
  static void LoadPairsBf16(const uint16_t* p, V* two) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    two[0] = {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16))};
    two[1] = {_mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  void Store(float* p) const { _mm256_storeu_ps(p, v); }
  void StoreF16(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest even by adding just under half of the last kept bit. A NaN would overflow, so it
  // becomes a quiet NaN instead.
  void StoreBf16(uint16_t* p) const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  friend V operator+(V a, V b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend V operator-(V a, V b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend V operator*(V a, V b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend V operator/(V a, V b) { return {_mm256_div_ps(a.v, b.v)}; }
  static V Fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c
  static V Max(V a, V b) { return {_mm256_max_ps(a.v, b.v)}; }  // b if either is NaN
  static V Min(V a, V b) { return {_mm256_min_ps(a.v, b.v)}; }
  static V Round(V a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  // 2^n for an integer n in [-127, 127]; 2^-127 becomes 0.
  static V Pow2(V n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
  }
  // a if begin <= j < end, else b.
  static V SelectInRange(V j, V begin, V end, V a, V b) {
    const __m256 in =
        _mm256_and_ps(_mm256_cmp_ps(j.v, begin.v, _CMP_GE_OQ), _mm256_cmp_ps(j.v, end.v, _CMP_LT_OQ));
    return {_mm256_blendv_ps(b.v, a.v, in)};
  }
  static bool AllEqual(V a, V b) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)) == 0xff; }
  // Lane k of r[i] becomes lane i of r[k].
  static void Transpose(V (&r)[kLanes]) {
    __m256 t[8];
    __m256 u[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
      t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {  // half h of u[i + k]: column 4 h + k of rows i to i + 3
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int k = 0; k < 4; ++k) {
      r[k].v = _mm256_permute2f128_ps(u[k], u[4 + k], 0x20);
      r[4 + k].v = _mm256_permute2f128_ps(u[k], u[4 + k], 0x31);
    }
  }
  // For strides of 4, 2 and 1 lanes: lanes a and b, a stride apart, become a + b and a - b.
  V AddAndSubtractLanes() const {
    // fma(+-1, v, swapped) rounds like an addition.
    const __m256 fours = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    const __m256 twos = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256 ones = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    __m256 r = _mm256_fmadd_ps(v, fours, _mm256_permute2f128_ps(v, v, 0x01));
    r = _mm256_fmadd_ps(r, twos, _mm256_permute_ps(r, 0x4e));
    return {_mm256_fmadd_ps(r, ones, _mm256_permute_ps(r, 0xb1))};
  }
  float Sum() const {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

// Integer vectors for the codes of quantised blocks.
struct Codes {
  __m256i v;

  static Codes Load(const std::byte* p) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
  }
  static Codes LoadSigned(const std::byte* p) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
  }
  Codes Bits(int shift, int mask) const {
    return {_mm256_and_si256(_mm256_srl_epi32(v, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(mask))};
  }
  // Bits [first, first + kLanes) of a word, one per lane, as 0 or 1.
  static Codes Spread(uint32_t word, int first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i words = _mm256_set1_epi32(static_cast<int>(word >> first));
    return {_mm256_and_si256(_mm256_srlv_epi32(words, lanes), _mm256_set1_epi32(1))};
  }
  Codes WithHigh(Codes high, int shift) const {
    return {_mm256_or_si256(v, _mm256_sll_epi32(high.v, _mm_cvtsi32_si128(shift)))};
  }
  Codes Minus(int offset) const { return {_mm256_sub_epi32(v, _mm256_set1_epi32(offset))}; }
  V ToFloat() const { return {_mm256_cvtepi32_ps(v)}; }
};

// codes[i] and codes[i + 16] = the entries of the table at the low and the high nibble of byte i of q.
inline void LookUpNibbles(const signed char* table, const std::byte* q, std::byte* codes) {
  const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
  auto* out = reinterpret_cast<__m128i*>(codes);
  _mm_store_si128(out, _mm_shuffle_epi8(entries, _mm_and_si128(both, mask)));
  _mm_store_si128(out + 1, _mm_shuffle_epi8(entries, high));
}

inline float HalfToFloat(const std::byte* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}
inline float SquareRoot(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }
