// Packs stored blocks of Q4_0 for the panels of codes in groups of 32, with the result of PackCodes. Rotated
// codes are integers of at most 8 bits in nearly all blocks (panel_kernels.h), so bytes suffice: 64 values an
// instruction, where PackCodes converts, rotates and rounds 16 floats. Weights of 2048 x 2048 take 0.47 ms
// instead of 1.87 ms (Emerald Rapids, one thread).
//
// A block of sixteen columns is eight vectors: vector w holds values 4 w to 4 w + 3 of each column, the words
// of a strip.

constexpr int64_t kQ4Bytes = 18;  // the step in fp16, then value i and value 16 + i in byte i
constexpr int kBlockWords = 8;    // of 4 codes

// The blocks at `offset` of sixteen rows as codes - 8, from -8 to 7.
inline void LoadQ4Words(const std::byte* const* rows, int64_t offset, __m512i* words) {
  __m512i four[4];  // rows i, i + 4, i + 8, i + 12
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i + 4 * r] + offset + 2));
    };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(row(0)), row(1), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(row(2)), row(3), 1);
    four[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]);
  const __m512i b = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i c = _mm512_unpackhi_epi32(four[0], four[1]);
  const __m512i d = _mm512_unpackhi_epi32(four[2], four[3]);
  const __m512i turned[4] = {_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b),
                             _mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d)};
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i eight = _mm512_set1_epi8(8);
  for (int w = 0; w < 4; ++w) {
    words[w] = _mm512_sub_epi8(_mm512_and_si512(turned[w], nibble), eight);
    words[w + 4] = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(turned[w], 4), nibble), eight);
  }
}

// words = H words, without the factor. Returns the columns in which all results are from -127 to 127; in the
// others they are wrong. Before the last stage, sums of sixteen codes are from -128 to 120.
inline __mmask16 RotateQ4Words(__m512i* words) {
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
    wrong = _mm512_or_si512(wrong, _mm512_xor_si512(words[w], wrapped));
    wrong = _mm512_or_si512(wrong, _mm512_maskz_set1_epi8(_mm512_cmpeq_epi8_mask(words[w], least), 1));
  }
  return _mm512_testn_epi32_mask(wrong, wrong);
}

// The steps of the blocks at `offset` of sixteen rows.
inline __m512 Q4Steps(const std::byte* const* rows, int64_t offset) {
  alignas(32) uint16_t steps[kStripColumns];
  for (int r = 0; r < kStripColumns; ++r) __builtin_memcpy(&steps[r], rows[r] + offset, sizeof steps[r]);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(steps)));
}

// Packs the block of one row as PackCodes does. `words` is the strip's first word of the block.
inline void PackQ4Block(const std::byte* block, float step, int column, std::byte* words, float* scales) {
  alignas(64) float values[kVectorGroup];
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned>(block[2 + i]);
    values[i] = step * static_cast<float>(static_cast<int>(byte & 15) - 8);
    values[16 + i] = step * static_cast<float>(static_cast<int>(byte >> 4) - 8);
  }
  RotateBack<kVectorGroup>(values, kVectorGroup);
  const IntScale s = ScaleOfWeights(LargestMagnitude(values, kVectorGroup),
                                    step * (1.0f / static_cast<float>(kVectorGroup)));
  scales[column] = s.scale;
  alignas(16) int8_t codes[kVectorGroup];
  for (int i = 0; i < kVectorGroup; i += 16)
    _mm_store_si128(reinterpret_cast<__m128i*>(codes + i), CodesOf(values + i, s.inverse));
  for (int i = 0; i < kVectorGroup; ++i)
    words[i / 4 * kStripColumns * 4 + column * 4 + i % 4] = static_cast<std::byte>(codes[i] ^ 0x80);
}

// PanelKernels::pack_q4_0
void PackQ4(const std::byte* const* rows, int count, int64_t values, std::byte* strip, float* scales) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const std::byte* sixteen[kStripColumns];  // rows that do not exist repeat the last one, and become zeros
  for (int r = 0; r < kStripColumns; ++r) sixteen[r] = rows[r < count ? r : count - 1];
  const __mmask16 there = static_cast<__mmask16>((1u << count) - 1);
  for (int64_t b = 0; b < values / kVectorGroup; ++b) {
    const int64_t offset = b * kQ4Bytes;
    __m512i words[kBlockWords];
    LoadQ4Words(sixteen, offset, words);
    const __m512 steps = Q4Steps(sixteen, offset);
    const __m512 each = _mm512_mul_ps(steps, _mm512_set1_ps(1.0f / static_cast<float>(kVectorGroup)));
    // Of steps that are not finite, or hardly above zero, ScaleOfWeights makes another scale.
    const __m512 size = _mm512_abs_ps(each);
    const __mmask16 finite = _mm512_cmp_ps_mask(size, _mm512_set1_ps(1e-30f), _CMP_GE_OQ) &
                             _mm512_cmp_ps_mask(size, _mm512_set1_ps(1e30f), _CMP_LE_OQ);
    const auto plain = static_cast<__mmask16>(RotateQ4Words(words) & finite);
    std::byte* to = strip + b * kBlockWords * kStripColumns * 4;
    float* block_scales = scales + b * kStripColumns;
    for (int w = 0; w < kBlockWords; ++w) {
      const __m512i codes = _mm512_maskz_mov_epi32(there, words[w]);
      _mm512_storeu_si512(to + w * kStripColumns * 4, _mm512_xor_si512(codes, flip));
    }
    _mm512_storeu_ps(block_scales, _mm512_maskz_mov_ps(there, each));
    for (unsigned odd = there & ~static_cast<unsigned>(plain); odd != 0; odd &= odd - 1) {
      const int c = __builtin_ctz(odd);
      PackQ4Block(sixteen[c] + offset, steps[c], c, to, block_scales);
    }
  }
}
