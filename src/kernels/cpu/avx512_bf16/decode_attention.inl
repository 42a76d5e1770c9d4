// Attention of one query over a bf16 cache: kernel_decode_attention.inl with vdpbf16ps for the scores.
//
// Four query heads of a kv head share a vector, one 128-bit lane each. Loading eight columns of a key
// broadcasts them to the four lanes, so a product costs one instruction per eight columns and four heads, and
// nine instructions turn the sums of four keys into one vector [head][key].
//
// 16 layers of 1 x 16,384 keys, and of 16 x 576 keys, 8 heads of 64 with 4 queries each, two threads of
// Emerald Rapids, medians of three interleaved runs: 28.7 and 20.9 ms, where 32.7 and 24.1 were taken with
// all lines of a tile prefetched at once, and with vdpbf16ps for the values.

constexpr int kLaneHeads = 4;

struct PairDecode {
  uint16_t* queries;  // [blocks][dim / 8][kLaneHeads][8]; zeros for missing heads and columns
  float* scores;  // [blocks][kDecodeKeys / 4][kLaneHeads][4]; later the weights
  float* maxima;  // [blocks][kLaneHeads][4]: each value four times
  float* sums;        // [blocks][kLaneHeads][4]
  uint16_t* rows;  // [kDecodeTile][dim]: bf16 copies of rows of a Q8_0 cache
  int64_t dim;  // padded head_dim
  int blocks;  // blocks of heads per kv head
};

inline PairDecode PackPairDecode(const DecodeHeads& heads, float* scratch) {
  PairDecode d;
  d.blocks = (heads.group + kLaneHeads - 1) / kLaneHeads;
  d.dim = PaddedDim(heads.head_dim);
  const int64_t blocks = int64_t{heads.kv_heads} * d.blocks;
  d.scores = scratch;
  d.maxima = d.scores + blocks * kLaneHeads * kDecodeKeys;
  d.sums = d.maxima + blocks * V::kLanes;
  d.queries = reinterpret_cast<uint16_t*>(d.sums + blocks * V::kLanes);
  d.rows = d.queries + blocks * kLaneHeads * d.dim;
  const V factor = V::Set(heads.scale * kLog2e);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int lane = 0; lane < kLaneHeads; ++lane) {
      const int64_t in_group = b % d.blocks * kLaneHeads + lane;
      const float* q = heads.queries + (b / d.blocks * heads.group + in_group) * heads.head_dim;
      uint16_t* to = d.queries + b * d.dim * kLaneHeads + 8 * lane;
      for (int64_t c = 0; c < d.dim; c += V::kLanes, to += V::kLanes * kLaneHeads) {
        const int64_t count = in_group < heads.group ? heads.head_dim - c : 0;
        const V x = count >= V::kLanes ? V::Load(q + c) : LoadPart(q + c, count);
        const __m256i narrow = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh((x * factor).v));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(narrow));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8 * kLaneHeads),
                         _mm256_extracti128_si256(narrow, 1));
      }
    }
  }
  return d;
}

inline __m512bh BroadcastEight(__m128i columns) {
  return reinterpret_cast<__m512bh>(_mm512_broadcast_i32x4(columns));
}

// Lane [head][i] of the result is the sum over lanes [head][...] of sums[i].
inline __m512 SumLanes(const __m512* sums) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(sums[0], sums[1]), _mm512_unpackhi_ps(sums[0], sums[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(sums[2], sums[3]), _mm512_unpackhi_ps(sums[2], sums[3]));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
  return _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
}

// Prefetches the rows of the next tile in memory order, a few lines at a time. Loads from L2 need the same
// buffers (sixteen a core) as lines that are on their way from memory. A whole tile at once took all of them,
// and reading took as long as memory and arithmetic one after the other.
class LinesAhead {
 public:
  LinesAhead(const DecodeHeads& heads, const std::byte* const* rows)
      : row_(rows), end_(rows + kDecodeTile), bytes_(heads.head_bytes * heads.kv_heads) {}
  void Fetch(int lines) {
    for (; lines > 0 && row_ != end_; --lines) {
      __builtin_prefetch(*row_ + at_, 0, 2);
      at_ += 64;
      if (at_ < bytes_) continue;
      at_ = 0;
      ++row_;
    }
  }
  // Where the lines of all steps are fewer than the tile's, as with heads of 80.
  void FetchRest() {
    while (row_ != end_) Fetch(1);
  }

 private:
  const std::byte* const* row_;
  const std::byte* const* end_;
  int64_t bytes_;
  int64_t at_ = 0;
};

// scores[j / 4][head][j % 4] of eight keys for one block of heads.
inline void ScoreEightKeys(const std::byte* const* rows, int64_t offset, int64_t head_dim,
                           const uint16_t* queries, float* scores, LinesAhead& ahead) {
  __m512 sums[8];
  const std::byte* keys[8];
  for (int i = 0; i < 8; ++i) keys[i] = rows[i] + offset;
  for (int i = 0; i < 8; ++i) sums[i] = _mm512_setzero_ps();
  int64_t c = 0;
  for (; c + 8 <= head_dim; c += 8) {
    const __m512bh q = LoadPairs(queries + c * kLaneHeads);
    ahead.Fetch(2);
    for (int i = 0; i < 8; ++i) {
      const __m128i key = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys[i] + 2 * c));
      sums[i] = _mm512_dpbf16_ps(sums[i], BroadcastEight(key), q);
    }
  }
  if (c < head_dim) {
    const __mmask8 exist = static_cast<__mmask8>((1u << (head_dim - c)) - 1);
    const __m512bh q = LoadPairs(queries + c * kLaneHeads);
    for (int i = 0; i < 8; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], BroadcastEight(_mm_maskz_loadu_epi16(exist, keys[i] + 2 * c)), q);
    }
  }
  _mm512_storeu_ps(scores, SumLanes(sums));
  _mm512_storeu_ps(scores + V::kLanes, SumLanes(sums + 4));
}

// outputs[r][column ...] += sum_i weights[r][i] values[i][column ...] for kRows heads of a block: 64 columns
// with kBlocks = 2, else the columns of a block of 32 set in `exist`. Outputs are the even columns of a block
// of 32, then the odd ones; heads are `stride` floats apart. In fp32, because Intel's vdpbf16ps has half the
// rate of an FMA: it would cost more than widening the values. AMD's has the same rate; there this was not
// measured, but reading the cache should take longer than either.
template <int kRows, int kBlocks>
inline void AddPairColumns(const std::byte* const* rows, int64_t offset, const float* weights,
                           __mmask32 exist, float* outputs, int64_t stride, LinesAhead& ahead) {
  V sums[kRows][2 * kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v] = V::Load(outputs + r * stride + v * V::kLanes);
  }
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int j = 0; j < kDecodeTile; ++j) {
    ahead.Fetch(kBlocks);
    V values[2 * kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      const std::byte* row = rows[j] + offset + 64 * b;
      const __m512i pairs = kBlocks == 2 ? _mm512_loadu_si512(row) : _mm512_maskz_loadu_epi16(exist, row);
      values[2 * b] = {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
      values[2 * b + 1] = {_mm512_castsi512_ps(_mm512_and_si512(pairs, high_half))};
    }
    for (int r = 0; r < kRows; ++r) {
      const V p = V::Set(weights[j / 4 * V::kLanes + r * 4 + j % 4]);
      for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v] = V::Fma(values[v], p, sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2 * kBlocks; ++v) sums[r][v].Store(outputs + r * stride + v * V::kLanes);
  }
}

template <int kRows>
inline void AddPairHeads(const std::byte* const* rows, int64_t offset, int64_t head_dim,
                         const float* weights, float* outputs, int64_t stride,
                         LinesAhead& ahead) {
  int64_t c = 0;
  for (; c + 64 <= head_dim; c += 64)
    AddPairColumns<kRows, 2>(rows, offset + 2 * c, weights, 0, outputs + c, stride, ahead);
  for (; c < head_dim; c += 32) {
    const auto exist = static_cast<__mmask32>((uint64_t{1} << Smaller(32, head_dim - c)) - 1);
    AddPairColumns<kRows, 1>(rows, offset + 2 * c, weights, exist, outputs + c, stride, ahead);
  }
}

// The rows of one kv head in bf16, at `offset` from each of `rows`.
struct PairRows {
  const std::byte* const* rows;
  int64_t offset;
};

// Converts rows of a Q8_0 cache to `copies` first.
inline PairRows NarrowDecodeTile(const DecodeHeads& heads, const DecodeTile& tile, int kv_head,
                                 const PairDecode& d, const std::byte** copies) {
  const int64_t offset = kv_head * heads.head_bytes;
  if (heads.cache_type != kQ8Cache) return {tile.rows, offset};
  for (int i = 0; i < kDecodeTile; ++i) {
    uint16_t* copy = d.rows + i * d.dim;
    NarrowQ8(tile.rows[i] + offset, heads.head_dim, copy);
    copies[i] = reinterpret_cast<const std::byte*>(copy);
  }
  return {copies, 0};
}

// Adds ALiBi and pads the scores to a whole tile with -infinity; then finds the maximum score of each head.
inline void FindPairMaxima(const DecodeHeads& heads, int64_t block, int64_t begin, int64_t end, int blocks,
                           float* scores, float* maxima) {
  const int64_t count = end - begin;
  for (int lane = 0; lane < kLaneHeads && heads.slopes != nullptr; ++lane) {
    const int64_t in_group = block % blocks * kLaneHeads + lane;
    if (in_group >= heads.group) break;
    const float slope = heads.slopes[block / blocks * heads.group + in_group] * kLog2e;
    for (int64_t j = 0; j < count; ++j) {
      const int32_t key = heads.key_positions[DecodeRow(heads, begin + j)];
      scores[j / 4 * V::kLanes + lane * 4 + j % 4] += slope * static_cast<float>(key - heads.position);
    }
  }
  int64_t j = count;
  for (; j % kDecodeTile != 0; ++j) {
    for (int lane = 0; lane < kLaneHeads; ++lane)
      scores[j / 4 * V::kLanes + lane * 4 + j % 4] = kMinusInfinity;
  }
  V top = V::Set(kMinusInfinity);
  for (int64_t i = 0; i < j / 4; ++i) top = V::Max(V::Load(scores + i * V::kLanes), top);
  top.v = _mm512_max_ps(top.v, _mm512_permute_ps(top.v, 0xb1));
  top.v = _mm512_max_ps(top.v, _mm512_permute_ps(top.v, 0x4e));
  Finite(top).Store(maxima);
}

// Turns one tile of a block's scores into weights, in place.
inline void WeighPairTile(const float* maxima, float* scores, float* sums) {
  const V base = V::Load(maxima);
  V total = V::Load(sums);
  for (int i = 0; i < kDecodeTile / 4; i += 2) {
    const V low = {NarrowExp2((V::Load(scores + i * V::kLanes) - base).v)};
    const V high = {NarrowExp2((V::Load(scores + (i + 1) * V::kLanes) - base).v)};
    total = total + low + high;
    low.Store(scores + i * V::kLanes);
    high.Store(scores + (i + 1) * V::kLanes);
  }
  total.Store(sums);
}

inline void AddPairTile(const DecodeHeads& heads, const PairRows& rows, int lanes, const float* weights,
                        float* outputs, LinesAhead& ahead) {
  const int64_t stride = DecodeStateFloats(heads.head_dim);
  if (lanes >= 4) AddPairHeads<4>(rows.rows, rows.offset, heads.head_dim, weights, outputs, stride, ahead);
  if (lanes == 3) AddPairHeads<3>(rows.rows, rows.offset, heads.head_dim, weights, outputs, stride, ahead);
  if (lanes == 2) AddPairHeads<2>(rows.rows, rows.offset, heads.head_dim, weights, outputs, stride, ahead);
  if (lanes == 1) AddPairHeads<1>(rows.rows, rows.offset, heads.head_dim, weights, outputs, stride, ahead);
}

// Writes the states: maxima, sums, and outputs in the order of columns.
inline void EndPairDecode(const DecodeHeads& heads, const PairDecode& d, float* states) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  for (int64_t h = 0; h < int64_t{heads.kv_heads} * heads.group; ++h) {
    const DecodeState state = DecodeStateAt(states, h, heads.head_dim);
    const int64_t block = h / heads.group * d.blocks + h % heads.group / kLaneHeads;
    const int64_t at = block * V::kLanes + h % heads.group % kLaneHeads * 4;
    *state.maximum = d.maxima[at];
    *state.sum = (d.sums[at] + d.sums[at + 1]) + (d.sums[at + 2] + d.sums[at + 3]);
    for (int64_t c = 0; c < d.dim; c += 32) {
      const V low = V::Load(state.output + c);
      const V high = V::Load(state.output + c + V::kLanes);
      _mm512_storeu_ps(state.output + c, _mm512_permutex2var_ps(low.v, first, high.v));
      _mm512_storeu_ps(state.output + c + V::kLanes, _mm512_permutex2var_ps(low.v, second, high.v));
    }
  }
}

void AttendPairDecode(const DecodeHeads& heads, int64_t begin, int64_t end, float* states, float* scratch) {
  PrefetchFirstDecode(heads, begin, end);
  const PairDecode d = PackPairDecode(heads, scratch);
  const int64_t blocks = int64_t{heads.kv_heads} * d.blocks;
  constexpr int64_t kBlockScores = kLaneHeads * kDecodeKeys;
  const std::byte* copies[kDecodeTile];
  for (int64_t j = begin; j < end; j += kDecodeTile) {
    const DecodeTile tile = DecodeTileAt(heads, /*values=*/false, begin, j, end);
    LinesAhead ahead(heads, tile.next);
    for (int g = 0; g < heads.kv_heads; ++g) {
      const PairRows rows = NarrowDecodeTile(heads, tile, g, d, copies);
      for (int64_t b = int64_t{g} * d.blocks; b < int64_t{g + 1} * d.blocks; ++b) {
        const uint16_t* queries = d.queries + b * d.dim * kLaneHeads;
        float* scores = d.scores + b * kBlockScores + (j - begin) * kLaneHeads;
        for (int i = 0; i < kDecodeTile; i += 8)
          ScoreEightKeys(rows.rows + i, rows.offset, heads.head_dim, queries, scores + i * kLaneHeads, ahead);
      }
    }
    ahead.FetchRest();
  }
  for (int64_t b = 0; b < blocks; ++b) {
    FindPairMaxima(heads, b, begin, end, d.blocks, d.scores + b * kBlockScores, d.maxima + b * V::kLanes);
    V::Set(0.0f).Store(d.sums + b * V::kLanes);
  }
  const int64_t floats = int64_t{heads.kv_heads} * heads.group * DecodeStateFloats(heads.head_dim);
  for (int64_t i = 0; i < floats; ++i) states[i] = 0.0f;
  for (int64_t j = begin; j < end; j += kDecodeTile) {
    const DecodeTile tile = DecodeTileAt(heads, /*values=*/true, begin, j, end);
    LinesAhead ahead(heads, tile.next);
    for (int g = 0; g < heads.kv_heads; ++g) {
      const PairRows rows = NarrowDecodeTile(heads, tile, g, d, copies);
      for (int b = 0; b < d.blocks; ++b) {
        const int64_t block = int64_t{g} * d.blocks + b;
        float* weights = d.scores + block * kBlockScores + (j - begin) * kLaneHeads;
        WeighPairTile(d.maxima + block * V::kLanes, weights, d.sums + block * V::kLanes);
        const int64_t head = int64_t{g} * heads.group + b * kLaneHeads;
        AddPairTile(heads, rows, heads.group - b * kLaneHeads, weights,
                    DecodeStateAt(states, head, heads.head_dim).output, ahead);
      }
    }
  }
  EndPairDecode(heads, d, states);
}
