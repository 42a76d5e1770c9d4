// Keys and queries in 8 bits (AttentionShape::key_bits is 8), for packed tiles: the first product uses
// vpdpbusd as well. Included after attention_int8.inl, before attention.inl.
//
//   q' = R q scale log2(e)   k' = R k             R R^T = 1, so q' . k'_j is the score
//   k'_j = kappa_j k8_j      kappa_j = max |k'_j| / 127, per key
//   q' = chi q8              chi = max |q'| / 127, per row of the tile
//   s_j = kappa_j chi sum_c q8[c] k8_j[c]
//
// R is the rotation of panel_kernels.h over the channels of a head. It spreads a channel that is larger than
// the others, which would leave few codes to them. Each key and each row is rounded by itself, so a score
// depends on nothing else.

// The limits of a scale, so that a product of two is finite.
constexpr float kLeastScale = 1e-12f;
constexpr float kMostScale = 1e12f;

// x as codes from `least` to `most`: a limited scale leaves values beyond them.
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

// RotateHeadBlock for sixteen rows, one per lane.
template <int64_t kSize>
inline void RotateLanesBlock(float factor, V* x) {
  for (int64_t stride = kSize / 2; stride > 0; stride /= 2) {
    for (int64_t i = 0; i < kSize; i += 2 * stride) {
      for (int64_t j = i; j < i + stride; ++j) {
        V a = x[j];
        V b = x[j + stride];
        if (kSize > kVectorGroup && stride == kSize / 2) {
          a = a * V::Set(kSigns.of[j]);
          b = b * V::Set(kSigns.of[j + stride]);
        }
        x[j] = a + b;
        x[j + stride] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < kSize; ++i) x[i] = x[i] * V::Set(factor);
}

inline void RotateLanes(V* x, int64_t dim) {
  RotateBlocks(dim, [x](auto size, float factor, int64_t c) { RotateLanesBlock<size>(factor, x + c); });
}

// Sixteen rows of queries from `first` on as vectors of one channel, times `factor`; zero where there is no
// row or channel.
inline void LoadQueryLanes(const AttentionTile& tile, int first, int64_t dim, float factor, V* x) {
  for (int64_t c = 0; c < dim; c += V::kLanes) {
    const int64_t left = tile.head_dim - c;
    const auto there = static_cast<__mmask16>(left >= V::kLanes ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
    V rows[V::kLanes];
    for (int i = 0; i < V::kLanes; ++i) {
      const int64_t at = tile.first_row + first + i;
      const float* q = tile.queries + at / tile.group * tile.query_stride + at % tile.group * tile.head_dim;
      rows[i].v = first + i < tile.rows ? _mm512_maskz_loadu_ps(there, q + c) : _mm512_setzero_ps();
      rows[i] = rows[i] * V::Set(factor);
    }
    V::Transpose(rows);
    for (int i = 0; i < V::kLanes; ++i) x[c + i] = rows[i];
  }
}

// Does to sixteen rows at once what RoundHead does to one, with the same results; sums are not needed. A row
// by itself spends more time on its maximum and its division than on its codes.
void PackQuadQueries(const AttentionTile& tile, const Panel& panel) {
  float* scales = QueryScales(panel);
  const __m512i byte = _mm512_set1_epi32(255);
  for (int r = 0; r < panel.vectors * V::kLanes; r += V::kLanes) {
    V x[kCodeDim];
    LoadQueryLanes(tile, panel.index * kPanel + r, panel.dim, tile.scale * kLog2e, x);
    RotateLanes(x, panel.dim);
    __m512 top = _mm512_setzero_ps();
    for (int64_t c = 0; c < panel.dim; ++c) top = _mm512_max_ps(_mm512_abs_ps(x[c].v), top);
    const __m512 most = _mm512_mul_ps(top, _mm512_set1_ps(1.0f / 127));
    const __m512 scale = ShortScale(
        _mm512_min_ps(_mm512_max_ps(most, _mm512_set1_ps(kLeastScale)), _mm512_set1_ps(kMostScale)));
    const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), scale);
    _mm512_storeu_ps(scales + r, scale);
    _mm512_storeu_ps(scales + kPanel + r, _mm512_mul_ps(scale, _mm512_set1_ps(-kMagic)));
    for (int64_t c = 0; c < panel.dim; c += 4) {
      __m512i quad = _mm512_setzero_si512();
      for (int i = 3; i >= 0; --i) {
        const __m512i code = CodesWithin(x[c + i].v, inverse, -128, 127);
        quad = _mm512_or_si512(_mm512_slli_epi32(quad, 8), _mm512_and_si512(code, byte));
      }
      const __m512i flip = _mm512_set1_epi32(static_cast<int>(0x80808080u));  // + 128 in each byte
      _mm512_storeu_si512(panel.queries + c / 4 * kPanel + r, _mm512_xor_si512(quad, flip));
    }
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
