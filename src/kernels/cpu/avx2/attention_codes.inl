// Attention with 16-bit codes (AttentionShape::int8_values and key_bits), for packed tiles, in the
// rows-as-lanes form of kernel_attention.inl: vpmaddwd multiplies 16 pairs of codes, an FMA 8 of floats.
// 16-bit codes cost no more here than 8-bit ones, which AVX2 cannot add up without overflow.
//
//   q' = R q scale log2(e)   k' = R k            R R^T = 1 (RotateHead), so q' . k'_j is the score
//   k'_j = kappa_j k16_j     kappa_j = max |k'_j| / a, per key
//   q' = chi q16             chi = max |q'| / a, per row            a = 2^15 / sqrt(dim)
//   s_j = kappa_j chi sum_c q16[c] k16_j[c]      at most dim a^2 = 2^30 in size
//   v_j = sigma_j v16_j      sigma_j = max |v_j| / 2047, per key
//   t_j = s_j + log2 sigma_j   M = max_j t_j of the tile   p16_j = floor(8191 2^(t_j - M) + d_j)
//   o = o 2^(m - m') + 2^(M - m') / 8191 sum_j p16_j v16_j           at most 64 * 8191 * 2047 < 2^30
//   l = l 2^(m - m') + 2^(M - m') sum_j 2^(t_j - M) / sigma_j
//
// Every key and every row is rounded by itself. avx512_bf16/attention_int8.inl says why t includes sigma, why
// l uses the weights before rounding, and why the thresholds d_j differ from key to key. Keys that may not
// become codes are multiplied in fp32.

constexpr float kMostWeight = 8191;
constexpr float kMostValue = 2047;

struct CodeBuffers {
  uint32_t* queries;  // [panel][dim / 2][kPanel] q16 of channels 2 c and 2 c + 1
  float* chi;         // [kAttentionRows]
  uint32_t* weights;  // [kKeyTile / 2][kPanel] p16 of keys 2 j and 2 j + 1, of one panel
  float* keep;        // [kPanel] the factor of the row's output
  float* take;        // [kPanel] the factor of the tile's product
};

inline CodeBuffers CodeBuffersOf(const Rows& rows) {
  float* weights = rows.more;
  float* keep = weights + kKeyTile / 2 * kPanel;
  return {reinterpret_cast<uint32_t*>(rows.queries), rows.queries + kAttentionRows * rows.dim / 2,
          reinterpret_cast<uint32_t*>(weights), keep, keep + kPanel};
}

struct CodeKeys {
  const int16_t* codes;  // [kKeyTile][dim]
  const float* scales;   // [kKeyTile] kappa
};

struct CodeValues {
  const uint32_t* codes;        // [kKeyTile / 2][dim] v16 of keys 2 j and 2 j + 1
  const float* log2_scales;     // [kKeyTile]
  const float* inverse_scales;  // [kKeyTile]
};

inline bool HasCodeKeys(const AttentionTile& tile) {
  return tile.key_bits > 0 && tile.packed_keys != nullptr;
}
inline bool HasCodeValues(const AttentionTile& tile) {
  return tile.int8_values && tile.packed_values != nullptr;
}

// The floats behind the codes of a tile.
inline const float* CodeScales(const std::byte* tile, int64_t dim) {
  return reinterpret_cast<const float*>(tile + CodedTileBytes(dim, 2)) - 2 * kKeyTile;
}

inline CodeKeys CodeKeysAt(const AttentionTile& tile, int64_t dim, int64_t begin) {
  const std::byte* at = tile.packed_keys + PackedTileOffset(tile, begin, dim);
  return {reinterpret_cast<const int16_t*>(at), CodeScales(at, dim)};
}

inline CodeValues CodeValuesAt(const AttentionTile& tile, int64_t dim, int64_t begin) {
  const std::byte* at = tile.packed_values + PackedTileOffset(tile, begin, dim);
  const float* scales = CodeScales(at, dim);
  return {reinterpret_cast<const uint32_t*>(at), scales, scales + kKeyTile};
}

// The key or value `j` of the rows from `first` on in fp32, zero-padded; zeros from key `end` on.
inline void WidenKey(const AttentionTile& cache, const std::byte* first, int64_t stride, int64_t j,
                     int64_t end, float* x) {
  const int64_t count = j < end ? cache.head_dim : 0;
  const std::byte* row = first + j * stride;
  if (cache.cache_type == kQ8Cache) DequantizeBlocks<Q8_0>(row, count, x);
  if (cache.cache_type == 2) WidenBf16(row, count, x);
  for (int64_t c = count; c < PaddedDim(cache.head_dim); ++c) x[c] = 0.0f;
}

// The scale with which these values have codes of at most `most`. Limited so that a product of two is finite,
// and so that a softmax weight can be multiplied and divided by it.
inline float ScaleOfCodes(const float* x, int64_t dim, float most) {
  const V sign = V::Set(-0.0f);
  V tops[2] = {V::Set(0.0f), V::Set(0.0f)};
  for (int64_t c = 0; c < dim; c += 2 * V::kLanes) {
    for (int i = 0; i < 2; ++i) {
      tops[i] = V::Max({_mm256_andnot_ps(sign.v, V::Load(x + c + i * V::kLanes).v)}, tops[i]);
    }
  }
  const __m256 top = V::Max(tops[0], tops[1]).v;
  __m128 largest = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  largest = _mm_max_ps(largest, _mm_movehl_ps(largest, largest));
  const float scale = _mm_cvtss_f32(_mm_max_ss(largest, _mm_movehdup_ps(largest))) / most;
  return scale < 1e-12f ? 1e-12f : scale < 1e12f ? scale : 1e12f;
}

// The codes of 16 values.
inline __m256i CodesOf(const float* x, V inverse) {
  const __m256i low = _mm256_cvtps_epi32((V::Load(x) * inverse).v);
  const __m256i high = _mm256_cvtps_epi32((V::Load(x + V::kLanes) * inverse).v);
  // packs works within halves of 128 bits.
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

inline void StoreCodes(void* p, __m256i codes) { _mm256_storeu_si256(static_cast<__m256i*>(p), codes); }

// R x as codes; returns their scale. The largest code is a.
inline float RotateToCodes(float* x, int64_t dim, int16_t* codes) {
  RotateHead(x, dim);
  const float scale = ScaleOfCodes(x, dim, 32768.0f / SquareRoot(static_cast<float>(dim)));
  const V inverse = V::Set(1.0f / scale);
  for (int64_t c = 0; c < dim; c += 2 * V::kLanes) StoreCodes(codes + c, CodesOf(x + c, inverse));
  return scale;
}

// Keys from `end` on do not exist; their codes are 0.
void PackCodeKeys(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t dim = PaddedDim(cache.head_dim);
  float* scales = const_cast<float*>(CodeScales(packed, dim));
  for (int64_t j = 0; j < kKeyTile; ++j) {
    float row[kCodeDim];
    WidenKey(cache, cache.keys, cache.key_stride, begin + j, end, row);
    scales[j] = RotateToCodes(row, dim, reinterpret_cast<int16_t*>(packed) + j * dim);
  }
}

void PackCodeValues(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t dim = PaddedDim(cache.head_dim);
  float* log2_scales = const_cast<float*>(CodeScales(packed, dim));
  float* inverse_scales = log2_scales + kKeyTile;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(packed);
  for (int64_t j = 0; j < kKeyTile; j += 2, pairs += dim) {
    float rows[2][kCodeDim];
    for (int64_t i = 0; i < 2; ++i) {
      WidenKey(cache, cache.values, cache.value_stride, begin + j + i, end, rows[i]);
      const float scale = ScaleOfCodes(rows[i], dim, kMostValue);
      log2_scales[j + i] = __builtin_log2f(scale);
      inverse_scales[j + i] = 1.0f / scale;
    }
    const V inverse[2] = {V::Set(inverse_scales[j]), V::Set(inverse_scales[j + 1])};
    for (int64_t c = 0; c < dim; c += 16) {
      const __m256i even = CodesOf(rows[0] + c, inverse[0]);
      const __m256i odd = CodesOf(rows[1] + c, inverse[1]);
      const __m256i low = _mm256_unpacklo_epi16(even, odd);
      const __m256i high = _mm256_unpackhi_epi16(even, odd);
      StoreCodes(pairs + c, _mm256_permute2x128_si256(low, high, 0x20));
      StoreCodes(pairs + c + 8, _mm256_permute2x128_si256(low, high, 0x31));
    }
  }
}

// A call without codes packs nothing (AttentionKernels::packs_pairs).
void PackCodes(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys, std::byte* values) {
  if (cache.key_bits > 0) PackCodeKeys(cache, begin, end, keys);
  PackCodeValues(cache, begin, end, values);
}

void PackCodeQueries(const AttentionTile& tile, const Rows& rows, const CodeBuffers& buffers) {
  const float factor = tile.scale * kLog2e;
  for (int r = 0; r < kAttentionRows; ++r) {
    if (r % kPanel >= PanelVectors(tile, r / kPanel) * V::kLanes) continue;
    const int64_t at = tile.first_row + r;
    const float* q = tile.queries + at / tile.group * tile.query_stride + at % tile.group * tile.head_dim;
    float row[kCodeDim];
    for (int64_t c = 0; c < rows.dim; ++c) {
      row[c] = r < tile.rows && c < tile.head_dim ? q[c] * factor : 0.0f;
    }
    int16_t codes[kCodeDim];
    buffers.chi[r] = RotateToCodes(row, rows.dim, codes);
    uint32_t* packed = buffers.queries + r / kPanel * kPanel * rows.dim / 2 + r % kPanel;
    for (int64_t c = 0; c < rows.dim; c += 2) {
      __builtin_memcpy(packed + c / 2 * kPanel, codes + c, sizeof *packed);
    }
  }
}

// sums += the products of pairs. Written as assembly for the reason at CodeDot in avx512_dot/panels.inl: GCC
// 12 copies every sum once in each step. AVX-VNNI's vpdpwssd, which does both in one instruction, was no
// faster on a Zen 5.
inline void AddProducts(__m256i a, __m256i b, __m256i* sums) {
  __m256i products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(*sums), "=&x"(products) : "x"(a), "x"(b));
}

// The empty assembly keeps a factor of several products in a register: GCC 12 reads it again for each.
inline __m256i LoadCodes(const void* p) {
  __m256i codes = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  __asm__("" : "+x"(codes));
  return codes;
}

inline __m256i BroadcastPair(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return _mm256_set1_epi32(pair);
}

// scores[j][lane] = start[j] + s_j of the lane's row, two keys at a time.
template <int kVectors>
void ScoreCodes(const CodeKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                const float* start, float* scores) {
  for (int64_t j = 0; j < kKeyTile; j += 2) {
    const int16_t* k = keys.codes + j * dim;
    __m256i sums[2][kVectors];
    for (int i = 0; i < 2; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_setzero_si256();
    }
#pragma GCC unroll 2
    for (int64_t c = 0; c < dim / 2; ++c) {
      __m256i q[kVectors];
      for (int v = 0; v < kVectors; ++v) q[v] = LoadCodes(queries + c * kPanel + v * V::kLanes);
      for (int i = 0; i < 2; ++i) {
        const __m256i key = BroadcastPair(k + i * dim + 2 * c);
        for (int v = 0; v < kVectors; ++v) {
          AddProducts(q[v], key, &sums[i][v]);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const V scale = V::Load(chi + v * V::kLanes);
      for (int i = 0; i < 2; ++i) {
        const V product = V{_mm256_cvtepi32_ps(sums[i][v])} * scale;
        V::Fma(product, V::Set(keys.scales[j + i]), V::Set(start[j + i]))
            .Store(scores + (j + i) * kPanel + v * V::kLanes);
      }
    }
  }
}

// output[c][lane] = output[c][lane] keep[lane] + take[lane] sum_j values[j][c] weights[j][lane], two columns
// at a time.
template <int kVectors>
void ValueCodes(const uint32_t* values, int64_t dim, const CodeBuffers& buffers, float* output) {
  for (int64_t c = 0; c < dim; c += 2) {
    __m256i sums[2][kVectors];
    for (int i = 0; i < 2; ++i) {
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_setzero_si256();
    }
#pragma GCC unroll 2
    for (int64_t j = 0; j < kKeyTile / 2; ++j) {
      __m256i p[kVectors];
      for (int v = 0; v < kVectors; ++v) p[v] = LoadCodes(buffers.weights + j * kPanel + v * V::kLanes);
      for (int i = 0; i < 2; ++i) {
        const __m256i value = BroadcastPair(values + j * dim + c + i);
        for (int v = 0; v < kVectors; ++v) {
          AddProducts(p[v], value, &sums[i][v]);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const V kept = V::Load(buffers.keep + v * V::kLanes);
      const V taken = V::Load(buffers.take + v * V::kLanes);
      for (int i = 0; i < 2; ++i) {
        float* o = output + (c + i) * kPanel + v * V::kLanes;
        V::Fma({_mm256_cvtepi32_ps(sums[i][v])}, taken, V::Load(o) * kept).Store(o);
      }
    }
  }
}

using CodeScores = void (*)(const CodeKeys& keys, int64_t dim, const uint32_t* queries, const float* chi,
                            const float* start, float* scores);
using CodeOutputs = void (*)(const uint32_t* values, int64_t dim, const CodeBuffers& buffers, float* output);
constexpr CodeScores kCodeScores[] = {ScoreCodes<1>, ScoreCodes<2>, ScoreCodes<3>};
constexpr CodeOutputs kCodeOutputs[] = {ValueCodes<1>, ValueCodes<2>, ValueCodes<3>};
static_assert(kPanelVectors == 3);

// 2^x for x <= 0, exactly 1 at 0 and 0 below -126, with the polynomial of avx512/softmax_weights.inl, whose
// relative error is below 9e-5: that of rounding to a code is above 6e-5.
inline V CodeExp2(V x) {
  const __m256 in_range = _mm256_cmp_ps(x.v, _mm256_set1_ps(-126.0f), _CMP_GE_OQ);
  const V n = {_mm256_floor_ps(_mm256_and_ps(x.v, in_range))};
  const V f = V{_mm256_and_ps(x.v, in_range)} - n;
  V p = V::Set(0.0770672402995397f);
  p = V::Fma(p, f, V::Set(0.22764497750178168f));
  p = V::Fma(p, f, V::Set(0.6951166307279139f));
  p = V::Fma(p, f, V::Set(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
  const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.v), exponent));
  return {_mm256_and_ps(power, in_range)};
}

// The softmax of one vector of rows over one tile, whose scores are t. Writes p16 in pairs of keys, and the
// factors of the row's output and of the tile's product.
inline void SoftmaxCodes(const float* scores, const float* inverse_scales, float* maximum, float* sum,
                         uint32_t* weights, float* keep, float* take) {
  V tops[2] = {V::Load(scores), V::Load(scores + kPanel)};
  for (int j = 2; j < kKeyTile; j += 2) {
    for (int i = 0; i < 2; ++i) tops[i] = V::Max(V::Load(scores + (j + i) * kPanel), tops[i]);
  }
  const V tile_top = V::Max(tops[0], tops[1]);
  const V tile_base = Finite(tile_top);
  V totals[2] = {V::Set(0.0f), V::Set(0.0f)};
  for (int j = 0; j < kKeyTile; j += 2) {
    __m256i codes[2];
    for (int i = 0; i < 2; ++i) {
      const V p = CodeExp2(V::Load(scores + (j + i) * kPanel) - tile_base);
      totals[i] = V::Fma(p, V::Set(inverse_scales[j + i]), totals[i]);
      codes[i] = _mm256_cvttps_epi32(V::Fma(p, V::Set(kMostWeight), V::Set(kThresholds[(j + i) % 16])).v);
    }
    StoreCodes(weights + j / 2 * kPanel, _mm256_or_si256(codes[0], _mm256_slli_epi32(codes[1], 16)));
  }
  const V old = V::Load(maximum);
  const V top = V::Max(old, tile_top);
  const V base = Finite(top);
  const V kept = CodeExp2(old - base);
  const V taken = CodeExp2(tile_top - base);
  V::Fma(V::Load(sum), kept, (totals[0] + totals[1]) * taken).Store(sum);
  top.Store(maximum);
  kept.Store(keep);
  (taken * V::Set(1.0f / kMostWeight)).Store(take);
}

// Computes t of the key tile at `begin` for all panels.
inline void ScoreTileCodes(const AttentionTile& tile, const Rows& rows, const CodeBuffers& buffers,
                           const float* log2_scales, int64_t begin, int64_t end) {
  if (!HasCodeKeys(tile)) {
    ScoreTile(tile, rows, begin, end);
    for (int panel = 0; panel < kPanels; ++panel) {
      for (int64_t j = 0; j < kKeyTile; ++j) {
        float* s = rows.scores + (panel * kKeyTile + j) * kPanel;
        for (int v = 0; v < PanelVectors(tile, panel); ++v, s += V::kLanes) {
          (V::Load(s) + V::Set(log2_scales[j])).Store(s);
        }
      }
    }
    return;
  }
  const CodeKeys keys = CodeKeysAt(tile, rows.dim, begin);
  const bool plain = NeedsNoMask(tile, rows, begin);
  for (int panel = 0; panel < kPanels; ++panel) {
    const int vectors = PanelVectors(tile, panel);
    if (vectors == 0) break;
    float* scores = rows.scores + panel * kPanel * kKeyTile;
    kCodeScores[vectors - 1](keys, rows.dim, buffers.queries + panel * kPanel * rows.dim / 2,
                             buffers.chi + panel * kPanel, log2_scales, scores);
    if (!plain) BiasAndMask(tile, rows, begin, end, panel, vectors, scores);
  }
}

void AttendCodes(const AttentionTile& tile, int64_t key_begin, int64_t key_end, float* state,
                 float* scratch) {
  const Rows rows = HasCodeKeys(tile) ? LayOutRows(tile, scratch) : PackRows(tile, scratch);
  const CodeBuffers buffers = CodeBuffersOf(rows);
  if (HasCodeKeys(tile)) PackCodeQueries(tile, rows, buffers);
  ClearState(tile, true, state);
  const State s = StateAt(state);
  const int64_t last = Smaller(key_end, rows.last_visible);
  for (int64_t begin = key_begin; begin < last; begin += kKeyTile) {
    if (begin + kKeyTile <= rows.first_visible) continue;
    const CodeValues values = CodeValuesAt(tile, rows.dim, begin);
    ScoreTileCodes(tile, rows, buffers, values.log2_scales, begin, key_end);
    for (int panel = 0; panel < kPanels; ++panel) {
      const int vectors = PanelVectors(tile, panel);
      if (vectors == 0) break;
      for (int i = 0; i < vectors * V::kLanes; i += V::kLanes) {
        const int row = panel * kPanel + i;
        SoftmaxCodes(rows.scores + panel * kPanel * kKeyTile + i, values.inverse_scales, s.maxima + row,
                     s.sums + row, buffers.weights + i, buffers.keep + i, buffers.take + i);
      }
      kCodeOutputs[vectors - 1](values.codes, rows.dim, buffers, s.output + panel * kPanel * rows.dim);
    }
  }
}

void AttendCodesOrFloats(const AttentionTile& tile, int64_t key_begin, int64_t key_end, bool with_values,
                         float* state, float* scratch) {
  if (with_values && HasCodeValues(tile)) return AttendCodes(tile, key_begin, key_end, state, scratch);
  AttendAny(tile, key_begin, key_end, with_values, state, scratch);
}
