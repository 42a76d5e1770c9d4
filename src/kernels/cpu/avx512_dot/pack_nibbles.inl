// Packs stored blocks of Q4_0, Q4_1 and Q4_K for the panels of codes in groups of 32, with the codes and
// scales of PackCodes (a block of zeros keeps its step, which changes no product). Rotated codes are integers
// of at most 8 bits in nearly all blocks (panel_kernels.h), so bytes suffice: 64 values an instruction, where
// PackCodes converts, rotates and rounds 16 floats. Weights of 2048 x 2048 take 0.5 ms in Q4_0 and 0.8 ms in
// Q4_1 instead of 1.9 ms (Emerald Rapids, one thread).
//
// A value is step * code, or step * code + shift. A shift changes the rotated block in its first value alone,
// which is the block's sum: only that is computed in floats, in the order of RotateBlock. PackCodes rounds
// step * code + shift, so its other values are no integers, but they round to these: where the sum fits, the
// shift is at most 19 steps, and the errors are below a thousandth of a code.
//
// A block of sixteen columns is eight vectors: vector w holds values 4 w to 4 w + 3 of each column, the words
// of a strip.

constexpr int kBlockWords = 8;  // of 4 codes
constexpr int kHalfWords = kBlockWords / 2;
constexpr __mmask64 kFirstBytes = 0x1111111111111111;  // of each word

// The 16 bytes at `offset` of sixteen rows: vector w holds bytes 4 w to 4 w + 3 of each.
inline void TurnBytes(const std::byte* const* rows, int64_t offset, __m512i* turned) {
  __m512i four[4];  // rows i, i + 4, i + 8, i + 12
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i + 4 * r] + offset));
    };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(row(0)), row(1), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(row(2)), row(3), 1);
    four[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]);
  const __m512i b = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i c = _mm512_unpackhi_epi32(four[0], four[1]);
  const __m512i d = _mm512_unpackhi_epi32(four[2], four[3]);
  turned[0] = _mm512_unpacklo_epi64(a, b);
  turned[1] = _mm512_unpackhi_epi64(a, b);
  turned[2] = _mm512_unpacklo_epi64(c, d);
  turned[3] = _mm512_unpackhi_epi64(c, d);
}

inline __m512i LowNibbles(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
inline __m512i HighNibbles(__m512i bytes) { return LowNibbles(_mm512_srli_epi16(bytes, 4)); }

// Blocks of 32 codes from 0 to 15 with their steps, sixteen columns of them.
struct NibbleBlocks {
  __m512i codes[kBlockWords];
  __m512 steps;
  __m512 shifts;  // unused where there is none
};

// words = H words, without the factor, of codes from -8 to 7. Returns the columns in which all results, but
// for the first if there is a shift, are from -127 to 127; in the others they are wrong. Before the last
// stage, sums of sixteen codes are from -128 to 120.
template <bool kShift>
inline __mmask16 RotateWords(__m512i* words) {
  for (int stride = kBlockWords / 2; stride > 0; stride /= 2) {
    for (int w = 0; w < kBlockWords; ++w) {
      if ((w & stride) != 0) continue;
      const __m512i a = words[w];
      const __m512i b = words[w + stride];
      words[w] = _mm512_add_epi8(a, b);
      words[w + stride] = _mm512_sub_epi8(a, b);
    }
  }
  constexpr __mmask64 kLastTwo = 0xcccccccccccccccc;  // of each word's four bytes
  constexpr __mmask64 kOdd = 0xaaaaaaaaaaaaaaaa;
  const __m512i neighbours =
      _mm512_broadcast_i32x4(_mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  const __m512i least = _mm512_set1_epi8(-128);
  __m512i wrong = _mm512_setzero_si512();
  for (int w = 0; w < kBlockWords; ++w) {
    const __m512i x = words[w];
    const __m512i other = _mm512_rol_epi32(x, 16);
    const __m512i y = _mm512_mask_sub_epi8(_mm512_add_epi8(x, other), kLastTwo, other, x);
    const __m512i next = _mm512_shuffle_epi8(y, neighbours);
    const __m512i wrapped = _mm512_mask_sub_epi8(_mm512_add_epi8(y, next), kOdd, next, y);
    words[w] = _mm512_mask_subs_epi8(_mm512_adds_epi8(y, next), kOdd, next, y);
    const __mmask64 bad =
        _mm512_cmpneq_epi8_mask(words[w], wrapped) | _mm512_cmpeq_epi8_mask(words[w], least);
    wrong = _mm512_or_si512(wrong, _mm512_maskz_set1_epi8(kShift && w == 0 ? bad & ~kFirstBytes : bad, 1));
  }
  return _mm512_testn_epi32_mask(wrong, wrong);
}

// The sums of the blocks' values with their shifts, as RotateBlock adds them.
inline __m512 SumsOf(const NibbleBlocks& b) {
  const auto value = [&b](int w, int byte) {
    const __m512i code = _mm512_and_si512(_mm512_srli_epi32(b.codes[w], static_cast<unsigned>(8 * byte)),
                                          _mm512_set1_epi32(15));
    return _mm512_add_ps(_mm512_mul_ps(b.steps, _mm512_cvtepi32_ps(code)), b.shifts);
  };
  __m512 sums[kHalfWords][4];
  for (int w = 0; w < kHalfWords; ++w) {
    for (int i = 0; i < 4; ++i) sums[w][i] = _mm512_add_ps(value(w, i), value(w + kHalfWords, i));
  }
  for (int stride = kHalfWords / 2; stride > 0; stride /= 2) {
    for (int w = 0; w < stride; ++w) {
      for (int i = 0; i < 4; ++i) sums[w][i] = _mm512_add_ps(sums[w][i], sums[w + stride][i]);
    }
  }
  return _mm512_add_ps(_mm512_add_ps(sums[0][0], sums[0][2]), _mm512_add_ps(sums[0][1], sums[0][3]));
}

// Packs the block of one column as PackCodes does. `words` is the strip's first word of the block.
template <bool kShift>
inline void PackColumn(const NibbleBlocks& b, int column, std::byte* words, float* scales) {
  alignas(64) uint8_t codes[kVectorGroup * kStripColumns];
  for (int w = 0; w < kBlockWords; ++w) _mm512_store_si512(codes + w * 64, b.codes[w]);
  const float step = b.steps[column];
  alignas(64) float values[kVectorGroup];
  for (int i = 0; i < kVectorGroup; ++i) {
    const int code = codes[i / 4 * 64 + column * 4 + i % 4];
    values[i] = step * static_cast<float>(kShift ? code : code - 8);
    if constexpr (kShift) values[i] += b.shifts[column];
  }
  RotateBack<kVectorGroup>(values, kVectorGroup);
  const IntScale s = ScaleOfWeights(LargestMagnitude(values, kVectorGroup),
                                    step * (1.0f / static_cast<float>(kVectorGroup)));
  scales[column] = s.scale;
  alignas(16) int8_t packed[kVectorGroup];
  for (int i = 0; i < kVectorGroup; i += 16)
    _mm_store_si128(reinterpret_cast<__m128i*>(packed + i), CodesOf(values + i, s.inverse));
  for (int i = 0; i < kVectorGroup; ++i)
    words[i / 4 * kStripColumns * 4 + column * 4 + i % 4] = static_cast<std::byte>(packed[i] ^ 0x80);
}

// Packs sixteen blocks. `there`: the columns that exist; the others become zeros.
template <bool kShift>
inline void PackBlocks(const NibbleBlocks& b, __mmask16 there, std::byte* to, float* scales) {
  const __m512i eight = _mm512_set1_epi8(8);
  __m512i words[kBlockWords];
  for (int w = 0; w < kBlockWords; ++w) words[w] = _mm512_sub_epi8(b.codes[w], eight);
  const __m512 factor = _mm512_set1_ps(1.0f / static_cast<float>(kVectorGroup));
  const __m512 each = _mm512_mul_ps(b.steps, factor);
  // Of steps that are not finite, or hardly above zero, ScaleOfWeights makes another scale.
  const __m512 size = _mm512_abs_ps(each);
  auto plain = static_cast<__mmask16>(_mm512_cmp_ps_mask(size, _mm512_set1_ps(1e-30f), _CMP_GE_OQ) &
                                      _mm512_cmp_ps_mask(size, _mm512_set1_ps(1e30f), _CMP_LE_OQ));
  plain = static_cast<__mmask16>(plain & RotateWords<kShift>(words));
  if constexpr (kShift) {
    const __m512 first = _mm512_mul_ps(SumsOf(b), factor);
    const __m512 room = _mm512_mul_ps(size, _mm512_set1_ps(127.4f));
    plain = static_cast<__mmask16>(plain & _mm512_cmp_ps_mask(_mm512_abs_ps(first), room, _CMP_LE_OQ));
    const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), each);
    const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse));
    words[0] = _mm512_mask_mov_epi8(words[0], kFirstBytes, code);
  }
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int w = 0; w < kBlockWords; ++w) {
    const __m512i codes = _mm512_maskz_mov_epi32(there, words[w]);
    _mm512_storeu_si512(to + w * kStripColumns * 4, _mm512_xor_si512(codes, flip));
  }
  _mm512_storeu_ps(scales, _mm512_maskz_mov_ps(there, each));
  for (unsigned odd = there & ~static_cast<unsigned>(plain); odd != 0; odd &= odd - 1)
    PackColumn<kShift>(b, __builtin_ctz(odd), to, scales);
}

// The fp16 values at `offset` of sixteen rows.
inline __m512 HalvesAt(const std::byte* const* rows, int64_t offset) {
  alignas(32) uint16_t halves[kStripColumns];
  for (int r = 0; r < kStripColumns; ++r) __builtin_memcpy(&halves[r], rows[r] + offset, sizeof halves[r]);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// The 32-bit words at `offset` of sixteen rows.
inline __m512i WordsAt(const std::byte* const* rows, int64_t offset) {
  alignas(64) int32_t words[kStripColumns];
  for (int r = 0; r < kStripColumns; ++r) __builtin_memcpy(&words[r], rows[r] + offset, sizeof words[r]);
  return _mm512_load_si512(words);
}

// Rows that do not exist repeat the last one.
struct SixteenRows {
  const std::byte* of[kStripColumns];
  __mmask16 there;

  SixteenRows(const std::byte* const* rows, int count) : there(static_cast<__mmask16>((1u << count) - 1)) {
    for (int r = 0; r < kStripColumns; ++r) of[r] = rows[r < count ? r : count - 1];
  }
};

// PanelKernels::pack_q4_0, and pack_q4_1. A block is the step in fp16, the shift if it has one, and 16 bytes:
// value i and value 16 + i in byte i.
template <bool kShift>
void PackQ4(const std::byte* const* rows, int count, int64_t values, std::byte* strip, float* scales) {
  constexpr int64_t kCodes = kShift ? 4 : 2;
  constexpr int64_t kBytes = kCodes + kVectorGroup / 2;
  const SixteenRows sixteen(rows, count);
  for (int64_t i = 0; i < values / kVectorGroup; ++i) {
    NibbleBlocks b;
    __m512i bytes[kHalfWords];
    TurnBytes(sixteen.of, i * kBytes + kCodes, bytes);
    for (int w = 0; w < kHalfWords; ++w) {
      b.codes[w] = LowNibbles(bytes[w]);
      b.codes[w + kHalfWords] = HighNibbles(bytes[w]);
    }
    b.steps = HalvesAt(sixteen.of, i * kBytes);
    if constexpr (kShift) b.shifts = HalvesAt(sixteen.of, i * kBytes + 2);
    PackBlocks<kShift>(b, sixteen.there, strip + i * kVectorGroup * kStripColumns,
                       scales + i * kStripColumns);
  }
}

// Scale and minimum of group j of sixteen rows, from the 12 bytes of each that hold them in
// ScaleAndMinimum's layout.
inline void ScalesAndMinima(const __m512i* packed, int j, __m512i* scale, __m512i* minimum) {
  const auto bits = [packed](int word, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi32(packed[word], static_cast<unsigned>(shift)),
                            _mm512_set1_epi32(mask));
  };
  const int byte = 8 * (j % 4);
  if (j < 4) {
    *scale = bits(0, byte, 63);
    *minimum = bits(1, byte, 63);
    return;
  }
  *scale = _mm512_or_si512(bits(2, byte, 15), _mm512_slli_epi32(bits(0, byte + 6, 3), 4));
  *minimum = _mm512_or_si512(bits(2, byte + 4, 15), _mm512_slli_epi32(bits(1, byte + 6, 3), 4));
}

// PanelKernels::pack_q4_k. A super-block is d and dmin in fp16, 12 bytes of scales and minima, and 128 bytes:
// the codes of groups 2 p and 2 p + 1 in the halves of bytes 32 p to 32 p + 31.
void PackQ4K(const std::byte* const* rows, int count, int64_t values, std::byte* strip, float* scales) {
  constexpr int64_t kBytes = 144;
  constexpr int64_t kCodes = 16;
  constexpr int kGroups = 8;
  const SixteenRows sixteen(rows, count);
  for (int64_t i = 0; i < values / (kGroups * kVectorGroup); ++i) {
    const int64_t at = i * kBytes;
    const __m512 d = HalvesAt(sixteen.of, at);
    const __m512 dmin = HalvesAt(sixteen.of, at + 2);
    const __m512i packed[3] = {WordsAt(sixteen.of, at + 4), WordsAt(sixteen.of, at + 8),
                               WordsAt(sixteen.of, at + 12)};
    __m512i bytes[kBlockWords];
    for (int j = 0; j < kGroups; ++j) {
      if (j % 2 == 0) {
        TurnBytes(sixteen.of, at + kCodes + 16 * j, bytes);
        TurnBytes(sixteen.of, at + kCodes + 16 * j + 16, bytes + kHalfWords);
      }
      NibbleBlocks b;
      for (int w = 0; w < kBlockWords; ++w)
        b.codes[w] = j % 2 == 0 ? LowNibbles(bytes[w]) : HighNibbles(bytes[w]);
      __m512i scale;
      __m512i minimum;
      ScalesAndMinima(packed, j, &scale, &minimum);
      b.steps = _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale));
      b.shifts = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(minimum)));
      const int64_t group = i * kGroups + j;
      PackBlocks<true>(b, sixteen.there, strip + group * kVectorGroup * kStripColumns,
                       scales + group * kStripColumns);
    }
  }
}
