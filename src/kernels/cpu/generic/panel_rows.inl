// Shared by the panel products of AVX-512 and AMX: conversion of float rows to int8 codes or bf16, in strips
// of weights and blocks of x, and the output of results. Included after V.
#include "kernels/cpu/generic/panel_common.inl"
#include "kernels/cpu/generic/rotation.inl"

// The largest magnitude of `count` floats, a multiple of 16, as bits. A NaN ranks above infinity, so neither
// is lost.
inline uint32_t LargestMagnitude(const float* x, int64_t count) {
  __m512i top = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t i = 0; i < count; i += 16) {
    const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude);
    top = _mm512_max_epu32(top, bits);
  }
  return _mm512_reduce_max_epu32(top);
}

// Sixteen codes, rounded to nearest even, in [-127, 127].
inline __m128i CodesOf(const float* x, float inverse) {
  const __m512i wide = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)));
  return _mm512_cvtsepi32_epi8(wide);
}

// Sixteen rows of packed words, `row_bytes` apart, as a strip [words][kStripColumns].
inline void TurnRows(const std::byte* rows, int64_t row_bytes, std::byte* strip) {
  for (int64_t i = 0; i < row_bytes; i += 64) {
    V words[kStripColumns];
    for (int r = 0; r < kStripColumns; ++r) words[r].v = _mm512_loadu_ps(rows + r * row_bytes + i);
    V::Transpose(words);
    for (int k = 0; k < 16; ++k) {
      words[k].Store(reinterpret_cast<float*>(strip + (i / 4 + k) * kStripColumns * 4));
    }
  }
}

// ScaleOfWeights of sixteen rows, one per lane.
struct RowScales {
  __m512 scale;
  __m512 inverse;
};

// Of `count` values of each row, a multiple of 16; rows are kPackValues floats apart. Rows from `rows` on are
// zero.
inline RowScales ScalesOfRows(const float* w, int rows, int64_t count, __m512 steps) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  V tops[kStripColumns];
  for (int r = 0; r < kStripColumns; ++r) {
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; r < rows && i < count; i += 16) {
      const __m512i bits = _mm512_loadu_si512(w + r * kPackValues + i);
      top = _mm512_max_epu32(top, _mm512_and_si512(bits, magnitude));
    }
    tops[r].v = _mm512_castsi512_ps(top);
  }
  V::Transpose(tops);
  __m512i most = _mm512_setzero_si512();
  for (const V& top : tops) most = _mm512_max_epu32(most, _mm512_castps_si512(top.v));
  const __m512 largest = _mm512_castsi512_ps(most);
  const __mmask16 finite = _mm512_cmplt_epu32_mask(most, _mm512_set1_epi32(0x7f800000));
  const __mmask16 there = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(1e-30f), _CMP_GE_OQ);
  const __m512 most_code = _mm512_set1_ps(127.0f);
  const __m512 size = _mm512_abs_ps(steps);
  const __mmask16 known = _mm512_cmp_ps_mask(size, _mm512_set1_ps(1e-30f), _CMP_GE_OQ);
  const __m512 room = _mm512_mul_ps(size, _mm512_set1_ps(127.4f));
  const __mmask16 fits =
      _mm512_mask_cmp_ps_mask(static_cast<__mmask16>(there & finite & known), largest, room, _CMP_LE_OQ);
  const __m512 scale = _mm512_mask_mov_ps(_mm512_maskz_div_ps(there, largest, most_code), fits, steps);
  const __m512 inverse = _mm512_maskz_div_ps(static_cast<__mmask16>(there & finite), most_code, largest);
  return {_mm512_mask_mov_ps(_mm512_set1_ps(__builtin_nanf("")), finite, scale),
          _mm512_mask_div_ps(inverse, fits, _mm512_set1_ps(1.0f), steps)};
}

// 64 codes, rounded to nearest even, in order; each half has a scale.
inline __m512i CodesOf64(const float* x, float low, float high) {
  __m512i wide[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 factor = _mm512_set1_ps(i < 2 ? low : high);
    wide[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), factor));
  }
  // The packs work within 128-bit lanes, so words of four codes come out as 0 4 8 12 1 5 9 13 ...
  const __m512i packed =
      _mm512_packs_epi16(_mm512_packs_epi32(wide[0], wide[1]), _mm512_packs_epi32(wide[2], wide[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, packed);
}

template <uint8_t kFlip, int64_t kGroup>
void PackCodes(float* w, int rows, int64_t values, const float* steps, std::byte* strip, float* scales) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(kFlip));
  for (int r = 0; r < rows; ++r) RotateBack<kGroup>(w + r * kPackValues, values);
  alignas(64) float inverses[kPackValues / kGroup][kStripColumns];
  for (int64_t begin = 0; begin < values; begin += kGroup) {
    const int64_t group = begin / kGroup * kStripColumns;
    const __m512 step = steps == nullptr ? _mm512_setzero_ps()
                                         : _mm512_mul_ps(_mm512_loadu_ps(steps + group),
                                                         _mm512_set1_ps(1.0f / static_cast<float>(kGroup)));
    const RowScales s =
        ScalesOfRows(w + begin, rows, values - begin < kGroup ? values - begin : kGroup, step);
    _mm512_storeu_ps(scales + group, s.scale);
    _mm512_store_ps(inverses[begin / kGroup], s.inverse);
  }
  for (int64_t i = 0; i < values; i += 64) {
    const float* low = inverses[i / kGroup];
    const float* high = inverses[(i + 32) / kGroup];
    V words[kStripColumns];
    for (int r = 0; r < kStripColumns; ++r) {
      words[r].v = r < rows ? _mm512_castsi512_ps(CodesOf64(w + r * kPackValues + i, low[r], high[r]))
                            : _mm512_setzero_ps();
    }
    V::Transpose(words);
    for (int k = 0; k < 16; ++k) {
      const __m512i flipped = _mm512_xor_si512(_mm512_castps_si512(words[k].v), flip);
      _mm512_storeu_si512(strip + (i / 4 + k) * kStripColumns * 4, flipped);
    }
  }
}

void PackBf16(float* w, int rows, int64_t values, const float*, std::byte* strip, float*) {
  alignas(64) std::byte narrow[kStripColumns * kPackValues * 2];
  for (int r = 0; r < kStripColumns; ++r) {
    auto* to = reinterpret_cast<uint16_t*>(narrow + r * values * 2);
    for (int64_t i = 0; i < values; i += 16) {
      (r < rows ? V::Load(w + r * kPackValues + i) : V::Set(0.0f)).StoreBf16(to + i);
    }
  }
  TurnRows(narrow, values * 2, strip);
}

// How far ahead PrepareCodes prefetches: rows of a tile are in L3, and the hardware stops at each page.
// Products of 768 x 2048 x 2048 gain 1 to 2 % (Emerald Rapids, one thread).
constexpr int64_t kValuesAhead = 1024;

template <int kRows, BlockOrder kOrder, int64_t kGroup>
void PrepareCodes(const float* x, int64_t count, int row, std::byte* block, const BlockScales& scales) {
  alignas(64) float values[kGroup];
  alignas(64) std::byte codes[kGroup];
  const int64_t all = PanelDepth(count);
  for (int64_t begin = 0; begin < all; begin += kGroup) {
    const int64_t depth = all - begin < kGroup ? all - begin : kGroup;
    const bool whole = count - begin >= depth;
    for (int64_t i = 0; i < depth; i += 16) __builtin_prefetch(x + begin + kValuesAhead + i);
    if (!whole) PadValues(x + begin, count - begin, depth, values);
    Rotate<kGroup>(whole ? x + begin : values, depth, values);
    const IntScale s = ShortScaleOf(LargestMagnitude(values, depth));
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < depth; i += 16) {
      const __m128i c = CodesOf(values + i, s.inverse);
      _mm_store_si128(reinterpret_cast<__m128i*>(codes + i), c);
      sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(c));
    }
    PlaceScale(scales, begin / kGroup * kRows + row, s.scale, -128 * _mm512_reduce_add_epi32(sum));
    PlaceWords<kRows, kOrder>(codes, depth / 4, row, begin / 4, all / 4, block);
  }
}

template <int kRows, BlockOrder kOrder>
void PrepareBf16(const float* x, int64_t count, int row, std::byte* block, const BlockScales&) {
  alignas(64) float padded[kPackValues];
  alignas(64) std::byte narrow[kPackValues * 2];
  for (int64_t begin = 0; begin < count; begin += kPackValues) {
    const int64_t there = count - begin < kPackValues ? count - begin : kPackValues;
    const int64_t depth = PanelDepth(there);
    PadValues(x + begin, there, depth, padded);
    for (int64_t i = 0; i < depth; i += 16) {
      V::Load(padded + i).StoreBf16(reinterpret_cast<uint16_t*>(narrow) + i);
    }
    PlaceWords<kRows, kOrder>(narrow, depth / 2, row, begin / 2, PanelDepth(count) / 2, block);
  }
}

// A mask of the first `count` lanes.
inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1);
}

// Sixteen results of a block's row, from column c on, with the bias and, if gated, the gate applied.
inline __m512 FinishColumns(const PanelTask& t, const float* row, int64_t c, int64_t half, __mmask16 there) {
  V v = V::Load(row + c);
  if (t.bias != nullptr) v = v + V{_mm512_maskz_loadu_ps(there, t.bias + c)};
  if (!t.gated) return v.v;
  V up = V::Load(row + half + c);
  if (t.bias != nullptr) up = up + V{_mm512_maskz_loadu_ps(there, t.up_bias + c)};
  return Activated(t.activation, v, up).v;
}

// Writes the existing rows and columns of a finished block. `stride` is that of `y`, and the panel's total
// columns.
inline void WriteBlock(const PanelBlock& b, int64_t block_rows, const float* y, int64_t stride) {
  const PanelTask& t = b.task;
  const int64_t rows = t.rows - b.first_row < block_rows ? t.rows - b.first_row : block_rows;
  for (int64_t r = 0; r < rows; ++r) {
    float* to = t.y + (b.first_row + r) * t.y_stride;
    for (int64_t c = 0; c < t.columns; c += 16) {
      const __mmask16 there = FirstLanes(t.columns - c);
      __m512 v = FinishColumns(t, y + r * stride, c, stride / 2, there);
      if (t.add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(there, to + c));
      _mm512_mask_storeu_ps(to + c, there, v);
    }
  }
}
