// Keys and queries in 8 bits (AttentionShape::key_bits is 8), for packed tiles: the first product uses
// vpdpbusd as well. Included after attention_int8.inl, before attention.inl.
//
//   q' = R q scale log2(e)   k' = R k             R R^T = 1, so q' . k'_j is the score
//   k'_j = kappa_j k8_j      kappa_j = max |k'_j| / 127, per key
//   q' = chi q8              chi = max |R q| scale log2(e) / 127, per row of the tile
//   s_j = kappa_j chi sum_c q8[c] k8_j[c]
//
// R is the rotation of panel_kernels.h over the channels of a head. It spreads a channel that is larger than
// the others, which would leave few codes to them. Each key and each row is rounded by itself, so a score
// depends on nothing else.

// The limits of a key's scale, and the larger one of a row's too, so that a product of two is finite.
constexpr float kLeastScale = 1e-12f;
constexpr float kMostScale = 1e12f;

// x, of a key, as codes from `least` to `most`: a limited scale leaves values beyond them.
inline __m512i CodesWithin(__m512 x, __m512 inverse, int least, int most) {
  const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
  return _mm512_min_epi32(_mm512_max_epi32(code, _mm512_set1_epi32(least)), _mm512_set1_epi32(most));
}

// Rounds x to codes and returns their scale; `sum` becomes the codes' sum.
inline float RoundHead(const float* x, int64_t dim, int8_t* codes, int32_t* sum) {
  __m512 top = _mm512_setzero_ps();
  for (int64_t c = 0; c < dim; c += V::kLanes) top = _mm512_max_ps(_mm512_abs_ps(V::Load(x + c).v), top);
  const float most = _mm512_reduce_max_ps(top) * (1.0f / 127);
  const float scale = most < kLeastScale ? kLeastScale : most < kMostScale ? most : kMostScale;
  const __m512 inverse = _mm512_set1_ps(1.0f / scale);
  __m512i sums = _mm512_setzero_si512();
  for (int64_t c = 0; c < dim; c += V::kLanes) {
    const __m512i code = CodesWithin(V::Load(x + c).v, inverse, -128, 127);
    sums = _mm512_add_epi32(sums, code);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + c), _mm512_cvtepi32_epi8(code));
  }
  *sum = _mm512_reduce_add_epi32(sums);
  return scale;
}

// A packed tile of keys. vpdpbusd takes queries as q8 + 128, which `starts` makes up for.
struct QuadKeys {
  const int8_t* codes;    // [kKeyTile][dim]
  const float* scales;    // [kKeyTile] kappa
  const int32_t* starts;  // [kKeyTile] -128 sum_c k8[c], plus kMagicBits
  // The codes of keys and values of the next tile, which are prefetched meanwhile: under a pattern, the
  // hardware cannot know them.
  const std::byte* next_keys;
  const std::byte* next_values;
};

inline bool HasQuadKeys(const AttentionTile& tile) {
  return tile.key_bits == 8 && tile.packed_keys != nullptr;
}

inline QuadKeys QuadKeysAt(const AttentionTile& tile, int64_t dim, int64_t begin, int64_t end) {
  const std::byte* packed = PackedKeysAt(tile, begin);
  const float* scales = reinterpret_cast<const float*>(packed + kKeyTile * dim);
  const int64_t next = begin + kKeyTile < end ? begin + kKeyTile : begin;
  return {reinterpret_cast<const int8_t*>(packed), scales,
          reinterpret_cast<const int32_t*>(scales + kKeyTile), PackedKeysAt(tile, next),
          PackedValuesAt(tile, next)};
}

// `packed` may hold the keys, one after another: the codes of a row end before the next row that is read.
void PackQuadKeys(const CacheRows& keys, int64_t dim, std::byte* packed) {
  float scales[kKeyTile];
  int32_t starts[kKeyTile];
  for (int64_t j = 0; j < kKeyTile; ++j) {
    float row[kCodeDim];
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      _mm512_storeu_ps(row + c, WidenPart(keys.first + j * keys.stride, c));
    }
    RotateHead(row, dim);
    int32_t sum;
    scales[j] = RoundHead(row, dim, reinterpret_cast<int8_t*>(packed) + j * dim, &sum);
    starts[j] = kMagicBits - 128 * sum;
  }
  __builtin_memcpy(packed + kKeyTile * dim, scales, sizeof scales);
  __builtin_memcpy(packed + kKeyTile * dim + sizeof scales, starts, sizeof starts);
}

// A scale without its last two bits: its product with kMagic is exact, so fma(kMagic + n, scale, -kMagic
// scale) is n scale, rounded once.
inline __m512 ShortScale(__m512 scale) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(scale), _mm512_set1_epi32(~3)));
}

// The queries of a panel as q8 + 128 in quads of channels, [dim / 4][kPanel], and after them chi, [kPanel],
// and -kMagic chi, [kPanel].
inline float* QueryScales(const Panel& panel) {
  return reinterpret_cast<float*>(panel.queries + panel.dim / 4 * kPanel);
}

// Sixteen rows of queries. One that does not exist is zero.
struct QueryRows {
  const float* of[V::kLanes];
  int count;
  int64_t head_dim;
};

inline QueryRows QueryRowsAt(const AttentionTile& tile, int first) {
  QueryRows rows;
  rows.count = static_cast<int>(Smaller(tile.rows - first, V::kLanes));
  rows.head_dim = tile.head_dim;
  int64_t heads[V::kLanes];
  FindHeads(tile, first, rows.count, tile.query_stride, heads);
  for (int i = 0; i < rows.count; ++i) rows.of[i] = tile.queries + heads[i];
  return rows;
}

// x[i] = x[i] * kSigns.of[i * kStep]
template <int kCount, int kStep>
inline void FlipSigns(V* x) {
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    if (kSigns.of[i * kStep] < 0) x[i] = V{_mm512_xor_ps(x[i].v, _mm512_set1_ps(-0.0f))};
  }
}

// The stages of RotateBlock for vectors instead of values, in registers.
template <int kCount>
inline void AddAndSubtract(V* x) {
  if constexpr (kCount > 1) {
    constexpr int kStride = kCount / 2;
#pragma GCC unroll 8
    for (int i = 0; i < kStride; ++i) {
      const V a = x[i];
      const V b = x[i + kStride];
      x[i] = a + b;
      x[i + kStride] = a - b;
    }
    AddAndSubtract<kStride>(x);
    AddAndSubtract<kStride>(x + kStride);
  }
}

// The wider stages of the block from channel `c` on, which add whole vectors of a row's channels.
// x[16 v + i] becomes vector v of row i.
template <int64_t kSize>
inline void RotateAcrossVectors(const QueryRows& rows, int64_t c, V* x) {
  constexpr int kCount = kSize / V::kLanes;
  __mmask16 there[kCount];
  for (int v = 0; v < kCount; ++v) {
    const int64_t left = rows.head_dim - c - v * V::kLanes;
    there[v] = static_cast<__mmask16>(left >= V::kLanes ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
  }
  for (int i = 0; i < rows.count; ++i) {
    V row[kCount];
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v)
      row[v].v = _mm512_maskz_loadu_ps(there[v], rows.of[i] + c + v * V::kLanes);
    if constexpr (kSize > kVectorGroup) FlipSigns<kCount, V::kLanes>(row);
    AddAndSubtract<kCount>(row);
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) x[v * V::kLanes + i].v = row[v].v;
  }
  for (int i = rows.count; i < V::kLanes; ++i) {
    for (int v = 0; v < kCount; ++v) x[v * V::kLanes + i] = V::Set(0.0f);
  }
}

// max(|a|, |b|) in one instruction; if one is NaN, the other's size.
inline __m512 LargerSize(__m512 a, __m512 b) { return _mm512_range_ps(a, b, 0x0b); }

// The stages within a vector, for sixteen rows, transposed: a stage is then an addition per vector and needs
// no shuffles. x[i], row i of a vector of channels, becomes channel i of the rows. Returns their max |x|.
template <int64_t kSize>
inline __m512 RotateWithinVector(V* x) {
  V lanes[V::kLanes];
  for (int i = 0; i < V::kLanes; ++i) lanes[i].v = x[i].v;
  V::Transpose(lanes);
  if constexpr (kSize > kVectorGroup) FlipSigns<V::kLanes, 1>(lanes);
  AddAndSubtract<V::kLanes>(lanes);
  __m512 tops[4] = {lanes[0].v, lanes[1].v, lanes[2].v, lanes[3].v};
  for (int i = 4; i < V::kLanes; ++i) tops[i % 4] = LargerSize(tops[i % 4], lanes[i].v);
  for (int i = 0; i < V::kLanes; ++i) x[i].v = lanes[i].v;
  return LargerSize(LargerSize(tops[0], tops[1]), LargerSize(tops[2], tops[3]));
}

// Sixteen rows of queries, rotated: channel c of R q is factor x[c], a row per lane.
struct RotatedQueries {
  V x[kCodeDim];
  __m512 tops;  // the rows' max |x|
  float factor;
};

// Does to sixteen rows what RotateHead does to one, but leaves the first block's factor to the scales: codes
// do not depend on it. Each of kSigns is the product of one for the vector and one for the lane, and the
// lanes' can wait for the stages within a vector, because a change of sign changes no rounding.
inline void RotateQueries(const QueryRows& rows, int64_t dim, RotatedQueries* r) {
  r->tops = _mm512_setzero_ps();
  RotateBlocks(dim, [&](auto size, float factor, int64_t c) {
    if (c == 0) r->factor = factor;
    RotateAcrossVectors<size>(rows, c, r->x + c);
    __m512 tops = _mm512_setzero_ps();
    for (int64_t i = c; i < c + size; i += V::kLanes)
      tops = LargerSize(RotateWithinVector<size>(r->x + i), tops);
    if (factor != r->factor) {  // a smaller block than the first
      const V more = V::Set(factor / r->factor);
      for (int64_t i = c; i < c + size; ++i) r->x[i] = r->x[i] * more;
      tops = _mm512_mul_ps(tops, more.v);
    }
    r->tops = LargerSize(tops, r->tops);
  });
}

// A row with only smaller values counts as if this were its largest, so that the inverse of its scale is
// finite.
constexpr float kLeastTop = 1e-30f;

struct QueryScale {
  __m512 chi;      // of factor x
  __m512 inverse;  // of the scale of x
};

// For codes of at most `most` in size from values x of at most `top`. Limits apply to chi alone, so no value
// is beyond the codes. If `top` is infinite, finite values become 0.
inline QueryScale QueryScaleOf(__m512 top, float most, float factor) {
  const __m512 size = _mm512_max_ps(top, _mm512_set1_ps(kLeastTop));
  const __m512 chi = _mm512_mul_ps(size, _mm512_set1_ps(factor / most));
  const __m512 limited =
      _mm512_min_ps(_mm512_max_ps(chi, _mm512_set1_ps(-kMostScale)), _mm512_set1_ps(kMostScale));
  return {limited, _mm512_div_ps(_mm512_set1_ps(most), size)};
}

// Rounds four channels to codes + 128, a quad per row: the sum with kMagic + 128 has them as its last byte.
// NaN gives an arbitrary code.
inline __m512i QuadOf(const V* x, __m512 inverse) {
  const __m512 base = _mm512_set1_ps(kMagic + 128);
  __m512i bits[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) bits[i] = _mm512_castps_si512(_mm512_fmadd_ps(x[i].v, inverse, base));
  // The last byte for all places of its word; masks choose one.
  const __m512i last = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
  __m512i quad = _mm512_mask_shuffle_epi8(bits[0], 0x2222222222222222u, bits[1], last);
  quad = _mm512_mask_shuffle_epi8(quad, 0x4444444444444444u, bits[2], last);
  return _mm512_mask_shuffle_epi8(quad, 0x8888888888888888u, bits[3], last);
}

// Sixteen rows at once: a row by itself spends more time on its maximum and its division than on its codes.
void PackQuadQueries(const AttentionTile& tile, const Panel& panel) {
  float* scales = QueryScales(panel);
  for (int r = 0; r < panel.vectors * V::kLanes; r += V::kLanes) {
    RotatedQueries q;
    RotateQueries(QueryRowsAt(tile, panel.index * kPanel + r), panel.dim, &q);
    const QueryScale scale = QueryScaleOf(q.tops, 127, tile.scale * kLog2e * q.factor);
    const __m512 chi = ShortScale(scale.chi);
    _mm512_storeu_ps(scales + r, chi);
    _mm512_storeu_ps(scales + kPanel + r, _mm512_mul_ps(chi, _mm512_set1_ps(-kMagic)));
    for (int64_t c = 0; c < panel.dim; c += 4)
      _mm512_storeu_si512(panel.queries + c / 4 * kPanel + r, QuadOf(q.x + c, scale.inverse));
  }
}

// scores[j][lane] = start[j] + s_j of the lane's row; tops[lane] = max_j scores[j][lane]. Sums start at
// kMagic's bits, so they are floats. Assembly for the reason at CodeDot in avx512_dot/panels.inl.
template <int kVectors>
void ScoreQuads(const QuadKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                const float* start, float* scores, float* tops) {
  constexpr int kKeys = kVectors == 1 ? 16 : 8;
  for (int v = 0; v < kVectors; ++v) V::Set(kMinusInfinity).Store(tops + v * V::kLanes);
  for (int64_t j = 0; j < kKeyTile; j += kKeys) {
    const int8_t* k = keys.codes + j * dim;
    const std::byte* next_keys = keys.next_keys + j * dim;
    const std::byte* next_values = keys.next_values + j * dim;
    const int32_t* starts = keys.starts + j;
    const float* key_scales = keys.scales + j;
    __m512i sums[kKeys][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        __asm__ volatile("vpbroadcastd %1, %0" : "=v"(sums[i][v]) : "m"(starts[i]));
      }
    }
    for (int64_t c = 0; c < dim / 4; c += 2) {
      // The lines of these keys and values, spread over their channels.
#pragma GCC unroll 2
      for (int64_t b = 0; b < 8 * kKeys; b += 64) {
        __builtin_prefetch(next_keys + 4 * kKeys * c + b, 0, 2);
        __builtin_prefetch(next_values + 4 * kKeys * c + b, 0, 2);
      }
#pragma GCC unroll 2
      for (int64_t d = c; d < c + 2; ++d) {
        __m512i q[kVectors];
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) q[v] = _mm512_loadu_si512(queries + d * kPanel + v * V::kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kKeys; ++i) {
          int32_t quad;
          __builtin_memcpy(&quad, k + i * dim + 4 * d, sizeof quad);
          const __m512i key = _mm512_set1_epi32(quad);
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) {
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i][v]) : "v"(q[v]), "v"(key));
          }
        }
      }
    }
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const V scale = V::Load(chi + v * V::kLanes);
      const V minus_magic = V::Load(chi + kPanel + v * V::kLanes);
      V top = V::Load(tops + v * V::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kKeys; ++i) {
        const V product = V::Fma({_mm512_castsi512_ps(sums[i][v])}, scale, minus_magic);
        const V score = V::Fma(product, V::Set(key_scales[i]), V::Set(start[j + i]));
        score.Store(scores + (j + i) * kPanel + v * V::kLanes);
        top = V::Max(score, top);
      }
      top.Store(tops + v * V::kLanes);
    }
  }
}

using QuadScores = void (*)(const QuadKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                            const float* start, float* scores, float* tops);
constexpr QuadScores kQuadScores[kPanelVectors] = {ScoreQuads<1>, ScoreQuads<2>, ScoreQuads<3>};
