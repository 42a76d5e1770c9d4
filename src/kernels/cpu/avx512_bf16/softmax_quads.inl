// The softmax whose weights become 8-bit codes (attention_int8.inl says which). Included before it.
//
// The two products of 16 scores take 32 instructions on two ports, so each instruction of the softmax on
// these ports counts: 9 here for 16 weights, where the polynomial of NarrowExp2 with shifts and conversions
// took 12.5.
//
//   base = round(32 r) / 32           r = max(max_j t_j of the tile, m - 40), m the largest t so far
//   p_j = 2^(round(32 (t_j - base)) / 32)
//   p8_j = floor(255 p_j + d_j)
//
// Rounding t to 1/32 makes a weight wrong by at most 1.1 %, and by 0.6 % in the mean square, without bias:
// about as much as rounding values to 8 bits does. A tile more than 40 octaves below the largest score
// adds almost nothing to outputs.

// The softmax's exponents are multiples of 1 / 32.
constexpr int kExpSteps = 32;
// The octaves that one tile's base may be below the largest score before it: so far apart, outputs and sums
// relative to either are finite.
constexpr float kMostOctaves = 40.0f;

// 1.5 * 2^23: plus an integer of at most 23 bits, it is a float whose last bits are that integer.
constexpr float kMagic = kSumBase;
constexpr int32_t kMagicBits = kSumBaseBits;

// The bits of 2^(i / 32), less what i adds to an exponent in QuadExp2.
struct Exp2Table {
  alignas(64) int32_t of[kExpSteps];
  constexpr Exp2Table() : of() {
    const float powers[kExpSteps] = {
        1.0000000f, 1.0218972f, 1.0442737f, 1.0671405f, 1.0905077f, 1.1143868f, 1.1387886f, 1.1637249f,
        1.1892071f, 1.2152474f, 1.2418578f, 1.2690510f, 1.2968396f, 1.3252367f, 1.3542556f, 1.3839099f,
        1.4142135f, 1.4451808f, 1.4768262f, 1.5091645f, 1.5422108f, 1.5759809f, 1.6104903f, 1.6457555f,
        1.6817929f, 1.7186193f, 1.7562522f, 1.7947091f, 1.8340081f, 1.8741677f, 1.9152066f, 1.9571441f};
    for (int i = 0; i < kExpSteps; ++i) of[i] = __builtin_bit_cast(int32_t, powers[i]) - (i << 18);
  }
};
inline constexpr Exp2Table kExp2;

// What one vector of rows subtracts from its scores.
struct QuadBase {
  __m512 base;     // 0 in rows that see no key
  __m512 offset;   // kMagic - 32 base
  __mmask16 sees;  // rows that see a key of this tile
  __mmask16 wide;  // rows whose base is too large for `offset`

  // kMagic + round(32 (t - base)). Assembly, here and in QuadExp2, because GCC 12 would use forms that
  // overwrite a constant, and copy it before: copies of vectors take the products' ports, too.
  template <bool kWide>
  __m512 Steps(__m512 t) const {
    const __m512 steps = _mm512_set1_ps(kExpSteps);
    __m512 z = t;
    __asm__("vfmadd213ps %2, %1, %0" : "+v"(z) : "v"(steps), "v"(offset));
    if constexpr (!kWide) return z;
    const __m512 below = _mm512_sub_ps(t, base);
    return _mm512_mask_mov_ps(z, wide, _mm512_fmadd_ps(below, steps, _mm512_set1_ps(kMagic)));
  }
};

inline QuadBase BaseNear(__mmask16 sees, __m512 reference) {
  const __m512 near = _mm512_maskz_mov_ps(sees, reference);
  const __m512 steps = V::Round({_mm512_mul_ps(near, _mm512_set1_ps(kExpSteps))}).v;
  const __mmask16 wide = _mm512_cmp_ps_mask(_mm512_abs_ps(steps), _mm512_set1_ps(1 << 21), _CMP_GT_OQ);
  const __m512 rounded = _mm512_mul_ps(steps, _mm512_set1_ps(1.0f / kExpSteps));
  return {_mm512_mask_mov_ps(rounded, wide, near), _mm512_sub_ps(_mm512_set1_ps(kMagic), steps), sees, wide};
}

// 2^(k / 32) for z = kMagic + k, and 2^-125 for less and for NaN. The last five bits of k select a power, and
// the others are added to its exponent.
inline __m512 QuadExp2(__m512 z) {
  const __m512 least = _mm512_set1_ps(kMagic - 125 * kExpSteps);
  __m512i k = _mm512_castps_si512(_mm512_max_ps(z, least));
  const __m512i octaves = _mm512_slli_epi32(k, 18);
  const __m512i low = _mm512_load_si512(kExp2.of);
  const __m512i high = _mm512_load_si512(kExp2.of + 16);
  __asm__("vpermi2d %2, %1, %0" : "+v"(k) : "v"(low), "v"(high));
  return _mm512_castsi512_ps(_mm512_add_epi32(k, octaves));
}

// 2^(old - base): exact but for the rounding of the table, because bases are multiples of 1/32. Bases of wide
// rows are not.
inline __m512 BaseFactor(__m512 old, __m512 base) {
  const __m512 steps = _mm512_mul_ps(_mm512_sub_ps(old, base), _mm512_set1_ps(kExpSteps));
  const __mmask16 between = _mm512_cmp_ps_mask(V::Round({steps}).v, steps, _CMP_NEQ_UQ);
  const __m512 power = QuadExp2(_mm512_add_ps(steps, _mm512_set1_ps(kMagic)));
  if (between == 0) return power;
  return _mm512_mask_mov_ps(power, between, NarrowExp2(_mm512_sub_ps(old, base)));
}

// p8_j of keys j, j + 1, j + 2, j + 3 are bytes of a word: byte i is computed in place, as floor(256^i (255 p
// + d)), of which the bytes below it are dropped.
struct ByteRounding {
  float factors[4];
  float thresholds[16];  // for key j % 16
  constexpr ByteRounding() : factors(), thresholds() {
    const float bytes[4] = {1.0f, 256.0f, 65536.0f, 16777216.0f};
    for (int i = 0; i < 4; ++i) factors[i] = 255.0f * bytes[i];
    for (int i = 0; i < 16; ++i) thresholds[i] = kThresholds[i] * bytes[i % 4];
  }
};
inline constexpr ByteRounding kByteRounding;

// Writes p8 of one vector of rows in quads of keys; returns sum_j p_j / sigma_j.
template <bool kWide>
inline V WeighQuads(const float* scores, const QuadBase& base, const float* inverse_scales,
                    uint32_t* weights) {
  V totals[4] = {V::Set(0.0f), V::Set(0.0f), V::Set(0.0f), V::Set(0.0f)};
  for (int left = kKeyTile; left > 0; left -= 16) {
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4) {
      __m512i codes[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const V p = {QuadExp2(base.Steps<kWide>(V::Load(scores + (j + i) * kPanel).v))};
        totals[i] = V::Fma(p, V::Set(inverse_scales[j + i]), totals[i]);
        const V code = V::Fma(p, V::Set(kByteRounding.factors[i]), V::Set(kByteRounding.thresholds[j + i]));
        codes[i] = _mm512_cvttps_epu32(code.v);
      }
      const __m512i low = _mm512_mask_blend_epi8(0x2222222222222222, codes[0], codes[1]);
      const __m512i high = _mm512_mask_blend_epi8(0x8888888888888888, codes[2], codes[3]);
      _mm512_storeu_si512(weights + j / 4 * kPanel, _mm512_mask_blend_epi8(0xcccccccccccccccc, low, high));
    }
    scores += 16 * kPanel;
    inverse_scales += 16;
    weights += 4 * kPanel;
  }
  return (totals[0] + totals[1]) + (totals[2] + totals[3]);
}

// The state of one vector of rows: its outputs and sums are relative to `base`.
struct QuadState {
  float* largest;  // m
  float* base;
  float* sum;
  float* keep;  // the factor of the outputs so far
};

// The base of one vector of rows for a tile whose maximum is `tile_top`; moves the state to it. A row that
// sees no key of the tile keeps its state.
inline QuadBase MoveBase(V tile_top, const QuadState& state) {
  const __mmask16 sees = _mm512_cmp_ps_mask(tile_top.v, _mm512_set1_ps(kMinusInfinity), _CMP_NEQ_UQ);
  const V largest = V::Max(V::Load(state.largest), tile_top);
  const QuadBase tile = BaseNear(sees, V::Max(tile_top, largest - V::Set(kMostOctaves)).v);
  const V old = V::Load(state.base);
  const __m512 keep = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), sees, BaseFactor(old.v, tile.base));
  largest.Store(state.largest);
  V{_mm512_mask_mov_ps(old.v, sees, tile.base)}.Store(state.base);
  V{keep}.Store(state.keep);
  return tile;
}

// After MoveBase: writes p8 of one vector of rows in quads of keys, and adds to the sum.
inline void SoftmaxQuads(const float* scores, const QuadBase& tile, const float* inverse_scales,
                         const QuadState& state, uint32_t* weights) {
  const V total = tile.wide == 0 ? WeighQuads<false>(scores, tile, inverse_scales, weights)
                                 : WeighQuads<true>(scores, tile, inverse_scales, weights);
  const V seen = {_mm512_maskz_mov_ps(tile.sees, total.v)};
  V::Fma(V::Load(state.sum), V::Load(state.keep), seen).Store(state.sum);
}
