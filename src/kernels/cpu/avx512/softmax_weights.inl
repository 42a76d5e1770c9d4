// The online softmax of kernel_softmax.inl for kernels that round the weights to bf16 factors: AMX tiles and
// vdpbf16ps. Their products take so little time that the exponentials count; these take half the
// instructions.

// 2^x, exactly 1 at 0. The fraction is in [0, 1), where the polynomial's relative error is below
// 9e-5 (minimax coefficients, by linear programming): 4 % of the error that rounding to bf16 adds.
inline __m512 NarrowExp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  __m512 p = _mm512_set1_ps(0.0770672402995397f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.22764497750168178f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6951166307279139f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);  // p * 2^floor(x), 0 at -infinity
}

// The maximum of one vector of rows' scores over a tile, in four chains; a single chain would be as long as
// the tile.
inline V TileTop(const float* scores) {
  V tops[4];
  for (int i = 0; i < 4; ++i) tops[i] = V::Load(scores + i * kPanel);
  for (int j = 4; j < kKeyTile; j += 4) {
    for (int i = 0; i < 4; ++i) tops[i] = V::Max(V::Load(scores + (j + i) * kPanel), tops[i]);
  }
  return V::Max(V::Max(tops[0], tops[1]), V::Max(tops[2], tops[3]));
}

// SoftmaxVector for a tile whose TileTop is known. Writes the weights of keys j and j + 1 as pairs to
// place(j) instead of `scores`.
template <typename Place>
inline void SoftmaxPairs(const float* scores, V tile_top, float* maximum, float* sum, float* output,
                         int64_t dim, const Place& place) {
  __m512i interleave;
  uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  __builtin_memcpy(&interleave, order, sizeof order);
  const V old = V::Load(maximum);
  const V top = V::Max(tile_top, old);
  const V base = Finite(top);
  V total = V::Set(0.0f);
  for (int j = 0; j < kKeyTile; j += 2) {
    const V first = {NarrowExp2((V::Load(scores + j * kPanel) - base).v)};
    const V second = {NarrowExp2((V::Load(scores + (j + 1) * kPanel) - base).v)};
    total = total + first;
    total = total + second;
    const __m512bh pair = _mm512_cvtne2ps_pbh(second.v, first.v);
    _mm512_storeu_si512(place(j), _mm512_permutexvar_epi16(interleave, reinterpret_cast<__m512i>(pair)));
  }
  top.Store(maximum);
  if (V::AllEqual(old, top)) {  // all factors are exactly 1
    (V::Load(sum) + total).Store(sum);
    return;
  }
  const V factor = {NarrowExp2((old - base).v)};
  V::Fma(V::Load(sum), factor, total).Store(sum);
  for (int64_t c = 0; c < dim; ++c) (V::Load(output + c * kPanel) * factor).Store(output + c * kPanel);
}
