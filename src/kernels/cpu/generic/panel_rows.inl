// Shared by the panel products of AVX-512 and AMX: conversion of float rows to int8 codes or bf16, in strips
// of weights and blocks of x, and the output of results. Included after V.
#include "kernels/cpu/generic/panel_common.inl"

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

// ScaleOf of sixteen rows, one per lane.
struct RowScales {
  __m512 scale;
  __m512 inverse;
};

// Of `count` values of each row, a multiple of 16; rows are kPackValues floats apart. Rows from `rows` on are
// zero.
inline RowScales ScalesOfRows(const float* w, int rows, int64_t count) {
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
  const __m512 scale = _mm512_maskz_div_ps(there, largest, most_code);
  return {_mm512_mask_mov_ps(_mm512_set1_ps(__builtin_nanf("")), finite, scale),
          _mm512_maskz_div_ps(there & finite, most_code, largest)};
}

// 64 codes, rounded to nearest even, in order.
inline __m512i CodesOf64(const float* x, float inverse) {
  const __m512 factor = _mm512_set1_ps(inverse);
  __m512i wide[4];
  for (int i = 0; i < 4; ++i)
    wide[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), factor));
  // The packs work within 128-bit lanes, so words of four codes come out as 0 4 8 12 1 5 9 13 ...
  const __m512i packed =
      _mm512_packs_epi16(_mm512_packs_epi32(wide[0], wide[1]), _mm512_packs_epi32(wide[2], wide[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, packed);
}

template <uint8_t kFlip, int64_t kGroup>
void PackCodes(const float* w, int rows, int64_t values, std::byte* strip, float* scales) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(kFlip));
  for (int64_t begin = 0; begin < values; begin += kGroup) {
    const int64_t count = values - begin < kGroup ? values - begin : kGroup;
    const RowScales s = ScalesOfRows(w + begin, rows, count);
    _mm512_storeu_ps(scales + begin / kGroup * kStripColumns, s.scale);
    alignas(64) float inverse[kStripColumns];
    _mm512_store_ps(inverse, s.inverse);
    for (int64_t i = begin; i < begin + count; i += 64) {
      V words[kStripColumns];
      for (int r = 0; r < kStripColumns; ++r) {
        words[r].v = r < rows ? _mm512_castsi512_ps(CodesOf64(w + r * kPackValues + i, inverse[r]))
                              : _mm512_setzero_ps();
      }
      V::Transpose(words);
      for (int k = 0; k < 16; ++k) {
        const __m512i flipped = _mm512_xor_si512(_mm512_castps_si512(words[k].v), flip);
        _mm512_storeu_si512(strip + (i / 4 + k) * kStripColumns * 4, flipped);
      }
    }
  }
}

void PackBf16(const float* w, int rows, int64_t values, std::byte* strip, float*) {
  alignas(64) std::byte narrow[kStripColumns * kPackValues * 2];
  for (int r = 0; r < kStripColumns; ++r) {
    auto* to = reinterpret_cast<uint16_t*>(narrow + r * values * 2);
    for (int64_t i = 0; i < values; i += 16) {
      (r < rows ? V::Load(w + r * kPackValues + i) : V::Set(0.0f)).StoreBf16(to + i);
    }
  }
  TurnRows(narrow, values * 2, strip);
}

template <int kRows, BlockOrder kOrder, int64_t kGroup>
void PrepareCodes(const float* x, int64_t count, int row, std::byte* block, float* scales, int32_t* sums) {
  alignas(64) float padded[kGroup];
  alignas(64) std::byte codes[kGroup];
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const int64_t there = count - begin < kGroup ? count - begin : kGroup;
    const int64_t depth = PanelDepth(there);
    const float* values = PadValues(x + begin, there, padded);
    const IntScale s = ScaleOf(LargestMagnitude(values, depth));
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < depth; i += 16) {
      const __m128i c = CodesOf(values + i, s.inverse);
      _mm_store_si128(reinterpret_cast<__m128i*>(codes + i), c);
      sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(c));
    }
    const int64_t group = begin / kGroup * kRows + row;
    scales[group] = s.scale;
    sums[group] = _mm512_reduce_add_epi32(sum);
    PlaceWords<kRows, kOrder>(codes, depth / 4, row, begin / 4, PanelDepth(count) / 4, block);
  }
}

template <int kRows, BlockOrder kOrder>
void PrepareBf16(const float* x, int64_t count, int row, std::byte* block, float*, int32_t*) {
  alignas(64) float padded[kPackValues];
  alignas(64) std::byte narrow[kPackValues * 2];
  for (int64_t begin = 0; begin < count; begin += kPackValues) {
    const int64_t there = count - begin < kPackValues ? count - begin : kPackValues;
    const int64_t depth = PanelDepth(there);
    const float* values = PadValues(x + begin, there, padded);
    for (int64_t i = 0; i < depth; i += 16) {
      V::Load(values + i).StoreBf16(reinterpret_cast<uint16_t*>(narrow) + i);
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
  return (v / (V::Set(1.0f) + Exp(V::Set(0.0f) - v)) * up).v;  // SiluMul of kernel_rows.inl
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
