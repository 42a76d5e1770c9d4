// A vector of sixteen floats: AVX-512 F, BW, DQ and VL. Integer instructions round to bf16, so CPUs without
// avx512_bf16 can run it.
struct V {
  static constexpr int kLanes = 16;
  __m512 v;

  static V Set(float a) { return {_mm512_set1_ps(a)}; }
  static V Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static V LoadF16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static V LoadBf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  // Two vectors of 16-bit values with one load.
  static void LoadTwoF16(const uint16_t* p, V* two) {
    const __m512i both = _mm512_loadu_si512(p);
    two[0] = {_mm512_cvtph_ps(_mm512_castsi512_si256(both))};
    two[1] = {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1))};
  }
  // Splits 2 * kLanes values into those with even indices and those with odd ones: one instruction for each,
  // where keeping the order would take five for both.
  static void LoadPairsBf16(const uint16_t* p, V* two) {
    const __m512i both = _mm512_loadu_si512(p);
    two[0] = {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))};
    two[1] = {_mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreF16(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest even by adding just under half of the last kept bit. A NaN would overflow, so it
  // becomes a quiet NaN instead.
  void StoreBf16(uint16_t* p) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __m512i words = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
  }

  friend V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend V operator/(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
  static V Fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c
  static V Max(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if either is NaN
  static V Min(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
  static V Round(V a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  // 2^n for an integer n in [-127, 127]; 2^-127 becomes 0.
  static V Pow2(V n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
  }
  // a if begin <= j < end, else b.
  static V SelectInRange(V j, V begin, V end, V a, V b) {
    const __mmask16 in =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(j.v, begin.v, _CMP_GE_OQ), j.v, end.v, _CMP_LT_OQ);
    return {_mm512_mask_mov_ps(b.v, in, a.v)};
  }
  static bool AllEqual(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ) == 0xffff; }
  // Lane k of r[i] becomes lane i of r[k].
  static void Transpose(V (&r)[kLanes]) {
    __m512i t[16];
    __m512i u[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(_mm512_castps_si512(r[i].v), _mm512_castps_si512(r[i + 1].v));
      t[i + 1] = _mm512_unpackhi_epi32(_mm512_castps_si512(r[i].v), _mm512_castps_si512(r[i + 1].v));
    }
    for (int i = 0; i < 16; i += 4) {  // 128-bit lane L of u[i + k]: column 4 L + k of rows i to i + 3
      u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int k = 0; k < 4; ++k) {
      const __m512i a = _mm512_shuffle_i32x4(u[k], u[4 + k], 0x88);
      const __m512i b = _mm512_shuffle_i32x4(u[k], u[4 + k], 0xdd);
      const __m512i c = _mm512_shuffle_i32x4(u[8 + k], u[12 + k], 0x88);
      const __m512i d = _mm512_shuffle_i32x4(u[8 + k], u[12 + k], 0xdd);
      r[k].v = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, c, 0x88));
      r[4 + k].v = _mm512_castsi512_ps(_mm512_shuffle_i32x4(b, d, 0x88));
      r[8 + k].v = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, c, 0xdd));
      r[12 + k].v = _mm512_castsi512_ps(_mm512_shuffle_i32x4(b, d, 0xdd));
    }
  }
  // For strides of 8, 4, 2 and 1 lanes: lanes a and b, a stride apart, become a + b and a - b.
  V AddAndSubtractLanes() const {
    // fma(+-1, v, swapped) rounds like an addition. A table, because the compiler would make each constant
    // anew, with three instructions, for every vector.
    alignas(64) static constexpr float kSigns[4][kLanes] = {
        {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
        {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
        {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
        {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
    };
    __m512 r = _mm512_fmadd_ps(v, _mm512_load_ps(kSigns[0]), _mm512_shuffle_f32x4(v, v, 0x4e));
    r = _mm512_fmadd_ps(r, _mm512_load_ps(kSigns[1]), _mm512_shuffle_f32x4(r, r, 0xb1));
    r = _mm512_fmadd_ps(r, _mm512_load_ps(kSigns[2]), _mm512_permute_ps(r, 0x4e));
    return {_mm512_fmadd_ps(r, _mm512_load_ps(kSigns[3]), _mm512_permute_ps(r, 0xb1))};
  }
  float Sum() const {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

// Integer vectors for the codes of quantised blocks.
struct Codes {
  __m512i v;

  static Codes Load(const std::byte* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static Codes LoadSigned(const std::byte* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  Codes Bits(int shift, int mask) const {
    return {_mm512_and_si512(_mm512_srl_epi32(v, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(mask))};
  }
  // Bits [first, first + kLanes) of a word, one per lane, as 0 or 1.
  static Codes Spread(uint32_t word, int first) {
    return {_mm512_maskz_set1_epi32(static_cast<__mmask16>(word >> first), 1)};
  }
  Codes WithHigh(Codes high, int shift) const {
    return {_mm512_or_si512(v, _mm512_sll_epi32(high.v, _mm_cvtsi32_si128(shift)))};
  }
  Codes Minus(int offset) const { return {_mm512_sub_epi32(v, _mm512_set1_epi32(offset))}; }
  V ToFloat() const { return {_mm512_cvtepi32_ps(v)}; }
};

// codes[i] and codes[i + 16] = the entries of the table at the low and the high nibble of byte i of q.
[[maybe_unused]] inline void LookUpNibbles(const signed char* table, const std::byte* q, std::byte* codes) {
  const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
  auto* out = reinterpret_cast<__m128i*>(codes);
  _mm_store_si128(out, _mm_shuffle_epi8(entries, _mm_and_si128(both, mask)));
  _mm_store_si128(out + 1, _mm_shuffle_epi8(entries, high));
}

[[maybe_unused]] float HalfToFloat(const std::byte* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}
[[maybe_unused]] float SquareRoot(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }
