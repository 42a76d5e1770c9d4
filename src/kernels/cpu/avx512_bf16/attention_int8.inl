// Softmax weights and values in 8 bits (AttentionShape::int8_values), for packed tiles: the second product
// uses vpdpbusd, at twice the rate of bf16. Included before attention.inl, which has the rest.
//
//   v_j = sigma_j v8_j         sigma_j = max |v_j| / 127, per key: its rounding depends on no other key
//   t_j = s_j + log2 sigma_j   M = max_j t_j of the tile     p8_j = floor(255 2^(t_j - M) + d_j)
//   o = o 2^(m - m') + 2^(M - m') / 255 sum_j p8_j v8_j
//   l = l 2^(m - m') + 2^(M - m') sum_j 2^(t_j - M) / sigma_j
//
// The sum l uses the weights before rounding. The thresholds d_j differ from key to key (ordered dithering,
// 16 levels): rounding to nearest would drop the tail of a tile with one strong key, whatever its mass. t
// includes sigma, so a key with large weight and small values, which the first key of a prompt often is, does
// not reduce the precision of the others.

// The layout of a call's scratch, here and in attention.inl.
struct PairBuffers {
  uint32_t* queries;  // [dim / 2][kPanel], 0 in unused lanes
  uint16_t* keys;  // [kKeyTile][dim]: copies, if the cache cannot be read in whole tiles
  uint32_t* values;  // [kKeyTile / 2][dim]: keys 2 j and 2 j + 1
  uint16_t* copies;  // [kKeyTile][dim]: the same for values
  uint32_t* weights;  // [kKeyTile / 2][kPanel]
  float* tops;  // [kPanel] maximum score of the tile
  float* keep;  // [kPanel] SoftmaxQuads' factors, for values in 8 bits
  float* take;
};

inline PairBuffers BuffersOf(const Rows& rows) {
  uint32_t* values = reinterpret_cast<uint32_t*>(rows.values);
  float* tops = rows.more + kKeyTile / 2 * kPanel;
  return {reinterpret_cast<uint32_t*>(rows.queries),
          reinterpret_cast<uint16_t*>(rows.keys),
          values,
          reinterpret_cast<uint16_t*>(values + kKeyTile / 2 * rows.dim),
          reinterpret_cast<uint32_t*>(rows.more),
          tops,
          tops + kPanel,
          tops + 2 * kPanel};
}

struct QuadTile {
  const uint32_t* values;       // [kKeyTile / 4][dim]: v8 of keys 4 j to 4 j + 3
  const float* log2_scales;     // [kKeyTile]
  const float* inverse_scales;  // likewise
};

inline bool HasQuads(const AttentionTile& tile) { return tile.int8_values && tile.packed_values != nullptr; }

inline QuadTile QuadTileAt(const std::byte* packed, int64_t dim) {
  const float* scales = reinterpret_cast<const float*>(packed + kKeyTile * dim);
  return {reinterpret_cast<const uint32_t*>(packed), scales, scales + kKeyTile};
}

inline __m512 WidenPart(const std::byte* row, int64_t c) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * c));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

// sigma of a row of values, limited to a range in which a softmax weight can be multiplied and divided by it.
inline float ScaleOfRow(const std::byte* row, int64_t dim) {
  __m512 top = _mm512_setzero_ps();
  for (int64_t c = 0; c < dim; c += V::kLanes) top = _mm512_max_ps(_mm512_abs_ps(WidenPart(row, c)), top);
  const float scale = _mm512_reduce_max_ps(top) * (1.0f / 127);
  return scale < 1e-12f ? 1e-12f : scale < 1e12f ? scale : 1e12f;
}

void PackQuadValues(const CacheRows& values, int64_t dim, std::byte* packed) {
  float* log2_scales = reinterpret_cast<float*>(packed + kKeyTile * dim);
  float* inverse_scales = log2_scales + kKeyTile;
  for (int64_t j = 0; j < kKeyTile; ++j) {
    const float scale = ScaleOfRow(values.first + j * values.stride, dim);
    log2_scales[j] = __builtin_log2f(scale);
    inverse_scales[j] = 1.0f / scale;
  }
  const __m512i byte = _mm512_set1_epi32(255);
  for (int64_t j = 0; j < kKeyTile; j += 4) {
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      __m512i quad = _mm512_setzero_si512();
      for (int i = 3; i >= 0; --i) {
        const __m512 value = WidenPart(values.first + (j + i) * values.stride, c);
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(value, _mm512_set1_ps(inverse_scales[j + i])));
        quad = _mm512_or_si512(_mm512_slli_epi32(quad, 8), _mm512_and_si512(code, byte));
      }
      _mm512_storeu_si512(packed + 4 * (j / 4 * dim + c), quad);
    }
  }
}

// The softmax of one vector of rows over one tile, whose scores are t with maximum `tile_top`. Writes p8 in
// quads of keys. `keep` is the factor for the row's output, `take` the factor for the tile's product.
inline void SoftmaxQuads(const float* scores, V tile_top, const float* inverse_scales, float* maximum,
                         float* sum, uint32_t* weights, float* keep, float* take) {
  const V tile_base = Finite(tile_top);
  V totals[2] = {V::Set(0.0f), V::Set(0.0f)};
  for (int j = 0; j < kKeyTile; j += 4) {
    __m512i codes[4];
    for (int i = 0; i < 4; ++i) {
      const V p = {NarrowExp2((V::Load(scores + (j + i) * kPanel) - tile_base).v)};
      totals[i % 2] = V::Fma(p, V::Set(inverse_scales[j + i]), totals[i % 2]);
      codes[i] = _mm512_cvttps_epi32(V::Fma(p, V::Set(255.0f), V::Set(kThresholds[(j + i) % 16])).v);
    }
    const __m512i low = _mm512_or_si512(codes[0], _mm512_slli_epi32(codes[1], 8));
    const __m512i high = _mm512_or_si512(_mm512_slli_epi32(codes[2], 16), _mm512_slli_epi32(codes[3], 24));
    _mm512_storeu_si512(weights + j / 4 * kPanel, _mm512_or_si512(low, high));
  }
  const V old = V::Load(maximum);
  const V top = V::Max(old, tile_top);
  const V base = Finite(top);
  const V kept = {NarrowExp2((old - base).v)};
  const V taken = {NarrowExp2((tile_top - base).v)};
  V::Fma(V::Load(sum), kept, (totals[0] + totals[1]) * taken).Store(sum);
  top.Store(maximum);
  kept.Store(keep);
  (taken * V::Set(1.0f / 255)).Store(take);
}

// output[c][lane] = output[c][lane] keep[lane] + take[lane] sum_j values[j][c] weights[j][lane], four columns
// at a time. Written as assembly for the reason at CodeDot in avx512_dot/panels.inl.
template <int kVectors>
void ValueQuads(const uint32_t* values, int64_t dim, const uint32_t* weights, const float* keep,
                const float* take, float* output) {
  for (int64_t c = 0; c < dim; c += 4) {
    __m512i sums[4][kVectors];
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_si512();
    }
    for (int64_t j = 0; j < kKeyTile / 4; ++j) {
      __m512i p[kVectors];
      for (int v = 0; v < kVectors; ++v) p[v] = _mm512_loadu_si512(weights + j * kPanel + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        const __m512i value = _mm512_set1_epi32(static_cast<int>(values[j * dim + c + i]));
        for (int v = 0; v < kVectors; ++v) {
          __asm__("vpdpbusd %2, %1, %0" : "+v"(sums[i][v]) : "v"(p[v]), "v"(value));
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const V kept = V::Load(keep + v * V::kLanes);
      const V taken = V::Load(take + v * V::kLanes);
      for (int i = 0; i < 4; ++i) {
        float* o = output + (c + i) * kPanel + v * V::kLanes;
        V::Fma({_mm512_cvtepi32_ps(sums[i][v])}, taken, V::Load(o) * kept).Store(o);
      }
    }
  }
}

using QuadValues = void (*)(const uint32_t* values, int64_t dim, const uint32_t* weights, const float* keep,
                            const float* take, float* output);
constexpr QuadValues kQuadValues[] = {ValueQuads<1>, ValueQuads<2>, ValueQuads<3>,
                                      ValueQuads<4>, ValueQuads<5>, ValueQuads<6>};
static_assert(sizeof kQuadValues / sizeof kQuadValues[0] == V::kPanelVectors);

// The softmax and the product with values, after the scores of a tile.
inline void TakeQuads(const QuadTile& tile, const Rows& rows, const PairBuffers& buffers, int vectors,
                      const State& s) {
  for (int i = 0; i < vectors * V::kLanes; i += V::kLanes) {
    SoftmaxQuads(rows.scores + i, V::Load(buffers.tops + i), tile.inverse_scales, s.maxima + i, s.sums + i,
                 buffers.weights + i, buffers.keep + i, buffers.take + i);
  }
  kQuadValues[vectors - 1](tile.values, rows.dim, buffers.weights, buffers.keep, buffers.take, s.output);
}
