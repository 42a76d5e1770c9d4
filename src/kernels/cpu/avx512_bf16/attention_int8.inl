// Softmax weights and values in 8 bits (AttentionShape::int8_values), for packed tiles: the second product
// uses vpdpbusd, at twice the rate of bf16. Included before attention.inl, which has the rest.
//
//   v_j = sigma_j v8_j         sigma_j = max |v_j| / 127, per key: its rounding depends on no other key
//   t_j = s_j + log2 sigma_j   p_j = 2^(t_j - base')        p8_j = floor(255 p_j + d_j)
//   o = o 2^(base - base') + sum_j p8_j v8_j
//   l = l 2^(base - base') + 255 sum_j p_j / sigma_j
//
// Each tile has its own base, about its largest t, and outputs and sums are relative to the last tile's: so
// the product is added as it is (softmax_quads.inl). The sum l uses the weights before rounding. The
// thresholds d_j differ from key to key (ordered dithering, 16 levels): rounding to nearest would drop the
// tail of a tile with one strong key, whatever its mass. t includes sigma, so a key with large weight and
// small values, which the first key of a prompt often is, does not reduce the precision of the others.

constexpr float kCodeUnit = 255;  // l is this times the sum of the weights

struct QuadTile {
  const uint32_t* values;       // [kKeyTile / 4][dim]: v8 of keys 4 j to 4 j + 3
  const float* log2_scales;     // [kKeyTile]
  const float* inverse_scales;  // [kKeyTile] 255 / sigma
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
  float inverses[kKeyTile];
  for (int64_t j = 0; j < kKeyTile; ++j) {
    const float scale = ScaleOfRow(values.first + j * values.stride, dim);
    log2_scales[j] = __builtin_log2f(scale);
    inverse_scales[j] = kCodeUnit / scale;
    inverses[j] = 1.0f / scale;
  }
  const __m512i byte = _mm512_set1_epi32(255);
  for (int64_t j = 0; j < kKeyTile; j += 4) {
    for (int64_t c = 0; c < dim; c += V::kLanes) {
      __m512i quad = _mm512_setzero_si512();
      for (int i = 3; i >= 0; --i) {
        const __m512 value = WidenPart(values.first + (j + i) * values.stride, c);
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(value, _mm512_set1_ps(inverses[j + i])));
        quad = _mm512_or_si512(_mm512_slli_epi32(quad, 8), _mm512_and_si512(code, byte));
      }
      _mm512_storeu_si512(packed + 4 * (j / 4 * dim + c), quad);
    }
  }
}

// output[c][lane] = output[c][lane] keep[lane] + sum_j values[j][c] weights[j][lane], eight columns at a
// time, or sixteen of a single vector. Written as assembly for the reason at CodeDot in
// avx512_dot/panels.inl.
template <int kVectors>
void ValueQuads(const uint32_t* values, int64_t dim, const uint32_t* weights, const float* keep,
                float* output) {
  constexpr int kColumns = kVectors == 1 ? 16 : 8;
  for (int64_t c = 0; c < dim; c += kColumns) {
    __m512i sums[kColumns][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kColumns; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) __asm__ volatile("vpxord %0, %0, %0" : "=v"(sums[i][v]));
    }
    for (int64_t j = 0; j < kKeyTile / 4; ++j) {
      __m512i p[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) p[v] = _mm512_loadu_si512(weights + j * kPanel + v * V::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) {
        const __m512i value = _mm512_set1_epi32(static_cast<int>(values[j * dim + c + i]));
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) {
          __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i][v]) : "v"(p[v]), "v"(value));
        }
      }
    }
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const V kept = V::Load(keep + v * V::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) {
        float* o = output + (c + i) * kPanel + v * V::kLanes;
        V::Fma(V::Load(o), kept, {_mm512_cvtepi32_ps(sums[i][v])}).Store(o);
      }
    }
  }
}

using QuadValues = void (*)(const uint32_t* values, int64_t dim, const uint32_t* weights, const float* keep,
                            float* output);
constexpr QuadValues kQuadValues[kPanelVectors] = {ValueQuads<1>, ValueQuads<2>, ValueQuads<3>};

// The softmax and the product with values, after the scores of a panel.
inline void TakeQuads(const QuadTile& tile, const Panel& panel, const PairBuffers& buffers) {
  const auto state_of = [&](int v) {
    const int i = v * V::kLanes;
    return QuadState{buffers.largest + i, panel.maxima + i, panel.sums + i, buffers.keep + i};
  };
  // All bases first: each is one chain of instructions, which would keep the weights waiting.
  QuadBase bases[kPanelVectors];
  for (int v = 0; v < panel.vectors; ++v)
    bases[v] = MoveBase(V::Load(buffers.tops + v * V::kLanes), state_of(v));
  for (int v = 0; v < panel.vectors; ++v) {
    SoftmaxQuads(panel.scores + v * V::kLanes, bases[v], tile.inverse_scales, state_of(v),
                 buffers.weights + v * V::kLanes);
  }
  kQuadValues[panel.vectors - 1](tile.values, panel.dim, buffers.weights, buffers.keep, panel.output);
}
