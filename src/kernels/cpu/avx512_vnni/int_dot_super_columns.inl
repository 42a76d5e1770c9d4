// Integer products of several rows of x with super-blocks, sixteen rows of weights at a time, with the bits
// of int_dot_super.inl: lane c of vector l holds what that file has in lane l of row c. Measured like
// int_dot_columns.inl, Q4_K: 88 GMAC/s for 8 rows of x and 110 for 16. One row of weights at a time, in
// 512-bit vectors, reached 61. Included after int_dot_columns.inl.

// Of a super-block of sixteen rows of weights.
struct alignas(64) SuperRows {
  int16_t scales[kColumns][16];  // in the order of DotGroup::sums
  int16_t minima[kColumns][16];
  uint32_t factors[kColumns];  // fp16: the step, then the minimum's
};

// A super-block in columns.
struct SuperColumns {
  __m512i words[kDotGroup / 4];  // of four codes
  __m512i scales[16];            // each twice in its 32 bits
  __m512i pairs[8];              // two neighbouring scales, negative and times the offset of codes
  __m512i minima[8];             // two neighbouring minima
  __m512 step;
  __m512 minimum;
};

template <typename Format>
inline void UnpackScales(const std::byte* b, int64_t c, SuperRows* rows) {
  const SuperScales s = Format::Scales(b);
  _mm256_store_si256(reinterpret_cast<__m256i*>(rows->scales[c]), s.scales);
  if constexpr (Format::kMinimum >= 0) {
    static_assert(Format::kMinimum == Format::kFactor + 2);
    _mm256_store_si256(reinterpret_cast<__m256i*>(rows->minima[c]), s.minima);
    rows->factors[c] = DotWord(b + Format::kFactor);
  } else {
    uint16_t step;
    __builtin_memcpy(&step, b + Format::kFactor, sizeof step);
    rows->factors[c] = step;
  }
}

// Four bytes of every column of a block instead of 32 of a row: word `word` of those 32.
struct ColumnBytes {
  const __m512i* words;  // of the whole block
  int64_t word;
  template <int kFrom, int kTo, int kMask>
  __m512i Bits(int offset) const {
    __m512i v = words[offset / 4 + word];
    if constexpr (kFrom > kTo) v = _mm512_srli_epi16(v, kFrom - kTo);
    if constexpr (kFrom < kTo) v = _mm512_slli_epi16(v, kTo - kFrom);
    return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(kMask)));
  }
  static __m512i Or(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
};

// The codes of word `word` of every group of 32, from group j on.
template <typename Format, int j = 0>
[[gnu::always_inline]] inline void StoreWords(const ColumnBytes& bytes, __m512i* words) {
  words[8 * j] = Format::template Codes<j>(bytes);
  if constexpr (j < 7) StoreWords<Format, j + 1>(bytes, words);
}

// Whether codes are looked up, row by row.
template <typename Format>
constexpr bool kLooksUp = requires {
  Format::CodesOfGroup(nullptr, 0);
};

// Bytes of a row that UnpackCodes reads: of the block or, where they are looked up, its codes.
template <typename Format>
constexpr int64_t kCopiedBytes = kLooksUp<Format> ? kDotGroup : Format::kBytes;

// Copies a block of some rows of weights, or its codes.
template <typename Format>
inline void CopyBlocks(const std::byte* w, int64_t w_stride, int64_t rows, std::byte* copy) {
  if constexpr (!kLooksUp<Format>) {
    CopyRows<Format::kBytes>(w, w_stride, rows, copy);
  } else {
    for (int64_t c = 0; c < rows; ++c, w += w_stride, copy += kDotGroup) {
      for (int j = 0; j < 8; ++j)
        _mm256_store_si256(reinterpret_cast<__m256i*>(copy + j * kDotBlock), Format::CodesOfGroup(w, j));
    }
  }
}

// The codes of a copy of the block.
template <typename Format>
[[gnu::noinline]] void UnpackCodes(const std::byte* copy, __m512i* words) {
  if constexpr (kLooksUp<Format>) {
    for (int64_t at = 0; at < kDotGroup; at += 16) TransposeWords<kDotGroup>(copy + at, words + at / 4);
  } else {
    __m512i stored[Format::kCodesEnd / 4];
    for (int at = Format::kCodes; at < Format::kCodesEnd; at += 16)
      TransposeWords<kCopyStride<Format::kBytes>>(copy + at, stored + at / 4);
    for (int64_t word = 0; word < 8; ++word) StoreWords<Format>({stored, word}, words + word);
  }
}

template <typename Format>
[[gnu::noinline]] void ScalesToColumns(const SuperRows& rows, SuperColumns* columns) {
  constexpr int64_t kScales = sizeof rows.scales[0];
  for (int half = 0; half < 2; ++half) {
    __m512i pairs[4];
    TransposeWords<kScales>(reinterpret_cast<const std::byte*>(rows.scales[0]) + 16 * half, pairs);
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * half + i;
      const __m512i low = _mm512_and_si512(pairs[i], _mm512_set1_epi32(0xffff));
      const __m512i high = _mm512_srli_epi32(pairs[i], 16);
      columns->scales[2 * at] = _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
      columns->scales[2 * at + 1] = _mm512_or_si512(high, _mm512_slli_epi32(high, 16));
      columns->pairs[at] =
          _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(pairs[i], Format::kOffsetBits));
    }
    if constexpr (Format::kMinimum >= 0) {
      TransposeWords<kScales>(reinterpret_cast<const std::byte*>(rows.minima[0]) + 16 * half,
                              columns->minima + 4 * half);
    }
  }
  const __m512i factors = _mm512_load_si512(rows.factors);
  columns->step = _mm512_mul_ps(HalvesToFloats(factors), _mm512_set1_ps(kUnitOf<Format>));
  columns->minimum = HalvesToFloats(_mm512_srli_epi32(factors, 16));
}

// sums += products of pairs of 16 bits; see AddWords.
inline void AddPairs(__m512i a, __m512i b, __m512i* sums) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(*sums) : "v"(a), "v"(b));
}

inline __m512i BroadcastWord(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

// Adds the products of a super-block with kRows rows of x to their sums.
template <int kRows, typename Format>
[[gnu::always_inline]] inline void AddSuperRows(const SuperColumns& w, const DotGroup* x, ColumnSums* sums) {
  constexpr int64_t kStride = sizeof(DotGroup);
  __m512 steps[kRows];
  __m512 minima[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    steps[r] = _mm512_mul_ps(w.step, _mm512_set1_ps(x[r].scale));
    minima[r] = _mm512_mul_ps(w.minimum, _mm512_set1_ps(x[r].scale));
  }
  for (int l = 0; l < 8; ++l) {
    const int8_t* codes = Plain(x->codes + 4 * l);
    const int16_t* x_sums = Plain(x->sums + 2 * l);
    const __m512i* words = Plain(w.words + l);
    const __m512i* scales = Plain(w.scales + l / 4 * 8);
    __m512i dots[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      dots[r] = _mm512_setzero_si512();
      if constexpr (Format::kOffsetBits > 0)
        AddPairs(w.pairs[l], BroadcastWord(x_sums + r * kStride / 2), &dots[r]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i four = BroadcastWord(codes + r * kStride + j * kDotBlock);
        AddPairs(_mm512_maddubs_epi16(words[8 * j], four), scales[j], &dots[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums[r][l];
      __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), steps[r], _mm512_load_ps(sum));
      if constexpr (Format::kMinimum >= 0) {
        __m512i below = _mm512_setzero_si512();
        AddPairs(w.minima[l], BroadcastWord(x_sums + r * kStride / 2), &below);
        y = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(below), minima[r], y);
      }
      _mm512_store_ps(sum, y);
    }
  }
}

template <typename Format>
[[gnu::noinline]] void AddSuperColumns(const SuperColumns& w, const DotGroup* x, int rows, ColumnSums* sums) {
  int r = 0;
  for (; r + 8 <= rows; r += 8) AddSuperRows<8, Format>(w, x + r, sums + r);
  if (rows & 4) AddSuperRows<4, Format>(w, x + r, sums + r), r += 4;
  if (rows & 2) AddSuperRows<2, Format>(w, x + r, sums + r), r += 2;
  if (rows & 1) AddSuperRows<1, Format>(w, x + r, sums + r);
}

// The same as ColumnDots.
template <typename Format>
[[gnu::noinline]] void SuperColumnDots(const IntDotTask& t, int64_t first, int64_t columns, int64_t i,
                                       int rows) {
  constexpr int64_t kCacheLine = 64;
  alignas(64) ColumnSums sums[kColumnTile];
  alignas(64) std::byte copy[kColumns * kCopyStride<kCopiedBytes<Format>>];
  SuperRows scales;
  SuperColumns block;
  if (columns < kColumns) {
    __builtin_memset(copy, 0, sizeof copy);
    __builtin_memset(&scales, 0, sizeof scales);
  }
  __builtin_memset(sums, 0, static_cast<size_t>(rows) * sizeof sums[0]);
  const std::byte* w = t.w + first * t.w_stride;
  const std::byte* ahead = w + columns * t.w_stride;
  const DotGroup* x = t.x + i;
  for (int64_t left = t.count; left > 0; left -= kDotGroup, w += Format::kBytes, x += t.x_rows) {
    CopyBlocks<Format>(w, t.w_stride, columns, copy);
    for (int64_t c = 0; c < columns; ++c, ahead += Format::kBytes) {
      for (int64_t at = 0; at < Format::kBytes; at += kCacheLine) __builtin_prefetch(ahead + at, 0, 2);
      UnpackScales<Format>(w + c * t.w_stride, c, &scales);
    }
    ScalesToColumns<Format>(scales, &block);
    UnpackCodes<Format>(copy, block.words);
    AddSuperColumns<Format>(block, x, rows, sums);
  }
  StoreColumns(sums, rows, columns, t.bias == nullptr ? nullptr : t.bias + first,
               t.y + i * t.y_stride + first, t.y_stride);
}

// Multiplies in columns where that is faster: blocks from two rows of x on, super-blocks from three.
template <typename Walk>
struct Columns;
template <typename Format>
struct Columns<Blocks<Format>> {
  static constexpr int64_t kFewest = 2;
  static constexpr auto kDots = ColumnDots<Format>;
};
template <typename Format>
struct Columns<SuperBlocks<Format>> {
  static constexpr int64_t kFewest = 3;
  static constexpr auto kDots = SuperColumnDots<Format>;
};

template <typename Walk>
inline bool TakesColumns(const IntDotTask& t) {
  if (t.x_rows < Columns<Walk>::kFewest) return false;
  ForTiles(t, [&](int64_t first, int64_t columns, int64_t i, int rows) {
    Columns<Walk>::kDots(t, first, columns, i, rows);
  });
  return true;
}
