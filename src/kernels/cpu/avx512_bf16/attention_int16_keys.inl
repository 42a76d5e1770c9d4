// Keys and queries in 16 bits (AttentionShape::key_bits is 16), for packed tiles: the first product uses
// vpdpwssd, at half the rate of vpdpbusd. Included after attention_int8_keys.inl, before attention.inl.
//
//   q' = R q scale log2(e)   k' = R k            as in attention_int8_keys.inl
//   k'_j = kappa_j k16_j     kappa_j = max |k'_j| / a, per key
//   q' = chi q16             chi = max |R q| scale log2(e) / a      a = 2^15 / sqrt(dim)
//   s_j = kappa_j chi sum_c q16[c] k16_j[c]      at most dim a^2 = 2^30 in size

struct WordKeys {
  const int16_t* codes;        // [kKeyTile][dim]
  const float* scales;         // [kKeyTile] kappa
  const std::byte* next_keys;  // as in QuadKeys
  const std::byte* next_values;
};

inline bool HasWordKeys(const AttentionTile& tile) {
  return tile.key_bits == 16 && tile.packed_keys != nullptr;
}

inline WordKeys WordKeysAt(const AttentionTile& tile, int64_t dim, int64_t begin, int64_t end) {
  const std::byte* packed = PackedKeysAt(tile, begin);
  const int64_t next = begin + kKeyTile < end ? begin + kKeyTile : begin;
  return {reinterpret_cast<const int16_t*>(packed),
          reinterpret_cast<const float*>(packed + 2 * kKeyTile * dim), PackedKeysAt(tile, next),
          PackedValuesAt(tile, next)};
}

// The largest code, a.
inline float MostWord(int64_t dim) { return 32768.0f / SquareRoot(static_cast<float>(dim)); }

// The scale with which values of at most `top` have codes of at most a.
inline __m512 WordScale(__m512 top, int64_t dim) {
  const __m512 scale = _mm512_mul_ps(top, _mm512_set1_ps(1.0f / MostWord(dim)));
  return _mm512_min_ps(_mm512_max_ps(scale, _mm512_set1_ps(kLeastScale)), _mm512_set1_ps(kMostScale));
}

inline __m512i WordCodes(__m512 x, __m512 inverse) { return CodesWithin(x, inverse, -32768, 32767); }

// `packed` may hold the keys, one after another, which have as many bytes as their codes.
void PackWordKeys(const CacheRows& keys, int64_t dim, std::byte* packed) {
  float scales[kKeyTile];
  for (int64_t j = 0; j < kKeyTile; ++j) {
    float row[kCodeDim];
    for (int64_t c = 0; c < dim; c += V::kLanes)
      _mm512_storeu_ps(row + c, WidenPart(keys.first + j * keys.stride, c));
    RotateHead(row, dim);
    __m512 top = _mm512_setzero_ps();
    for (int64_t c = 0; c < dim; c += V::kLanes) top = _mm512_max_ps(_mm512_abs_ps(V::Load(row + c).v), top);
    const __m512 scale = WordScale(_mm512_set1_ps(_mm512_reduce_max_ps(top)), dim);
    const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), scale);
    scales[j] = _mm512_cvtss_f32(scale);
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      const __m256i codes = _mm512_cvtepi32_epi16(WordCodes(V::Load(row + c).v, inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + 2 * (j * dim + c)), codes);
    }
  }
  __builtin_memcpy(packed + 2 * kKeyTile * dim, scales, sizeof scales);
}

// The queries of a panel as q16 in pairs of channels, [dim / 2][kPanel], and after them chi, [kPanel].
inline float* WordQueryScales(const Panel& panel) {
  return reinterpret_cast<float*>(panel.queries + panel.dim / 2 * kPanel);
}

// Sixteen rows at once, as PackQuadQueries. NaN becomes 0.
void PackWordQueries(const AttentionTile& tile, const Panel& panel) {
  for (int r = 0; r < panel.vectors * V::kLanes; r += V::kLanes) {
    RotatedQueries q;
    RotateQueries(QueryRowsAt(tile, panel.index * kPanel + r), panel.dim, &q);
    const QueryScale scale = QueryScaleOf(q.tops, MostWord(panel.dim), tile.scale * kLog2e * q.factor);
    _mm512_storeu_ps(WordQueryScales(panel) + r, scale.chi);
    for (int64_t c = 0; c < panel.dim; c += 2) {
      const __m512i even = _mm512_cvtps_epi32(_mm512_mul_ps(q.x[c].v, scale.inverse));
      const __m512i odd = _mm512_cvtps_epi32(_mm512_mul_ps(q.x[c + 1].v, scale.inverse));
      const __m512i pair = _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
      _mm512_storeu_si512(panel.queries + c / 2 * kPanel + r, pair);
    }
  }
}

// As ScoreQuads, but sums start at 0 and are converted: they may have 30 bits.
template <int kVectors>
void ScoreWords(const WordKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                const float* start, float* scores, float* tops) {
  constexpr int kKeys = kVectors == 1 ? 16 : 8;
  for (int v = 0; v < kVectors; ++v) V::Set(kMinusInfinity).Store(tops + v * V::kLanes);
  for (int64_t j = 0; j < kKeyTile; j += kKeys) {
    const int16_t* k = keys.codes + j * dim;
    const float* key_scales = keys.scales + j;
    const std::byte* next_keys = keys.next_keys + 2 * j * dim;
    const std::byte* next_values = keys.next_values + j * dim;
    __m512i sums[kKeys][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) __asm__ volatile("vpxord %0, %0, %0" : "=v"(sums[i][v]));
    }
    for (int64_t c = 0; c < dim / 2; c += 2) {
#pragma GCC unroll 2
      for (int64_t b = 0; b < 8 * kKeys; b += 64) {
        __builtin_prefetch(next_keys + 4 * kKeys * c + b, 0, 2);
        __builtin_prefetch(next_values + 2 * kKeys * c + b / 2, 0, 2);
      }
#pragma GCC unroll 2
      for (int64_t d = c; d < c + 2; ++d) {
        __m512i q[kVectors];
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) q[v] = _mm512_loadu_si512(queries + d * kPanel + v * V::kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kKeys; ++i) {
          int32_t pair;
          __builtin_memcpy(&pair, k + i * dim + 2 * d, sizeof pair);
          const __m512i key = _mm512_set1_epi32(pair);
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) {
            __asm__ volatile("vpdpwssd %2, %1, %0" : "+v"(sums[i][v]) : "v"(q[v]), "v"(key));
          }
        }
      }
    }
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const V scale = V::Load(chi + v * V::kLanes);
      V top = V::Load(tops + v * V::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kKeys; ++i) {
        const V product = V{_mm512_cvtepi32_ps(sums[i][v])} * scale;
        const V score = V::Fma(product, V::Set(key_scales[i]), V::Set(start[j + i]));
        score.Store(scores + (j + i) * kPanel + v * V::kLanes);
        top = V::Max(score, top);
      }
      top.Store(tops + v * V::kLanes);
    }
  }
}

using WordScores = void (*)(const WordKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                            const float* start, float* scores, float* tops);
constexpr WordScores kWordScores[kPanelVectors] = {ScoreWords<1>, ScoreWords<2>, ScoreWords<3>};
