// Integer products of several rows of x with blocks, sixteen rows of weights at a time, with the bits of
// int_dot_blocks.inl. Each row of weights is a column of the vectors: lane c of vector b holds what that file
// has in lane b of row c. One instruction then scales the sums of sixteen rows of weights. Included after
// int_dot.inl.
//
// A block of all columns is unpacked into registers, codes as [words of four][column], and multiplied by
// words of x, each broadcast to all columns. Measured from L2 (Q4_0, K = 2048, one thread of Emerald Rapids
// at 3 GHz, peak 373): 130 GMAC/s for 8 rows of x and 165 for 16. Scaling row by row reached 78.

constexpr int kColumns = kDotStrip;
constexpr int kColumnTile = 16;        // rows of x that share unpacked weights; their sums take 8 KiB of L1
constexpr int kWords = kDotBlock / 4;  // of four codes, per block

// out[j]: the four bytes at p + 4 j and in the same place of the following rows, `stride` bytes apart. Reads
// 16 bytes of each row.
template <int64_t stride>
inline void TransposeWords(const std::byte* p, __m512i* out) {
  __m512i rows[4];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {  // rows q, q + 4, q + 8, q + 12
    const std::byte* row = p + q * stride;
    rows[q] = _mm512_castsi128_si512(LoadHalf(row));
    rows[q] = _mm512_inserti32x4(rows[q], LoadHalf(row + 4 * stride), 1);
    rows[q] = _mm512_inserti32x4(rows[q], LoadHalf(row + 8 * stride), 2);
    rows[q] = _mm512_inserti32x4(rows[q], LoadHalf(row + 12 * stride), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i b = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i c = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  out[0] = _mm512_unpacklo_epi64(a, b);
  out[1] = _mm512_unpackhi_epi64(a, b);
  out[2] = _mm512_unpacklo_epi64(c, d);
  out[3] = _mm512_unpackhi_epi64(c, d);
}

// The fp16 numbers in the low halves of the words.
inline __m512 HalvesToFloats(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }

// Bytes from one row of weights to the next where kBytes of each are copied; whole cache lines.
template <int64_t kBytes>
constexpr int64_t kCopyStride = (kBytes + 63) / 64 * 64;

template <typename Format>
constexpr int64_t kGroupBytes = kGroupBlocks* Format::kBytes;

// A block of each column.
struct ColumnBlock {
  __m512i words[kWords];  // word j: codes 4 j to 4 j + 3
  __m512 steps;
  __m512 minima;
};

// Adds 16 to every code whose bit is set: bit i of a column's word is that of code i.
inline void AddFifthBits(__m512i bits, __m512i* words) {
  const __m512i lanes = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512i bytes =
        _mm512_shuffle_epi8(bits, _mm512_add_epi8(lanes, _mm512_set1_epi8(static_cast<char>(k))));
    const __mmask64 low = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32(0x08040201));
    const __mmask64 high = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32(static_cast<int>(0x80402010)));
    const __m512i sixteens = _mm512_set1_epi8(16);
    words[2 * k] = _mm512_mask_add_epi8(words[2 * k], low, words[2 * k], sixteens);
    words[2 * k + 1] = _mm512_mask_add_epi8(words[2 * k + 1], high, words[2 * k + 1], sixteens);
  }
}

// The words at the beginning of the blocks of a group, which hold their factors. Where two vectors of sixteen
// words contain those of all eight blocks of a row, one permutation gathers them; the second vector ends with
// the last one. This costs half of a transposition for every block.
template <typename Format>
struct Heads {
  static constexpr int At(int b) { return b * Format::kBytes / 4; }  // the word
  static constexpr int kNext = At(7) - 15;                           // where the second vector begins
  static constexpr bool kGathered = Format::kBytes % 2 == 0 && At(3) <= 15 && At(4) >= kNext;

  __m512i words[kGroupBlocks];

  // Of a copy of a group.
  [[gnu::always_inline]] void Gather(const std::byte* w) {
    alignas(64) uint32_t rows[kColumns][kGroupBlocks];
    const auto at = [](int b) { return At(b) <= 15 ? At(b) : At(b) - kNext + 16; };
    const __m512i places =
        _mm512_castsi256_si512(_mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
    for (int c = 0; c < kColumns; ++c, w += kCopyStride<kGroupBytes<Format>>) {
      const __m512i all =
          _mm512_permutex2var_epi32(_mm512_loadu_si512(w), places, _mm512_loadu_si512(w + 4 * kNext));
      _mm256_store_si256(reinterpret_cast<__m256i*>(rows[c]), _mm512_castsi512_si256(all));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(rows);
    TransposeWords<sizeof rows[0]>(bytes, words);
    TransposeWords<sizeof rows[0]>(bytes + 16, words + 4);
  }
  // Those of block b. The block may begin in the middle of a word.
  __m512i Of(int64_t b) const {
    if constexpr (Format::kBytes % 4 == 0) return words[b];
    return _mm512_srl_epi32(words[b], _mm_cvtsi64_si128(b % 2 * 16));
  }
};

// The words of a block whose 16 bytes at p hold codes i and i + 16 in byte i.
template <int64_t stride>
[[gnu::always_inline]] inline void UnpackNibbles(const std::byte* p, __m512i* words) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i packed[4];
  TransposeWords<stride>(p, packed);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    words[j] = _mm512_and_si512(packed[j], mask);
    words[4 + j] = _mm512_and_si512(_mm512_srli_epi16(packed[j], 4), mask);
  }
}

// Whether the blocks of a group share what is before their codes, as those of a super-block do.
template <typename Format>
constexpr bool kSharesHead = requires {
  Format::kBlockCodes;
};

// 2^(e - 128) for the low byte e of each word.
inline __m512 PowersOfTwo(__m512i words) {
  const __m512i e = _mm512_and_si512(words, _mm512_set1_epi32(255));
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), e);
  const __mmask16 is_normal = _mm512_cmpgt_epi32_mask(e, one);
  return _mm512_castsi512_ps(_mm512_mask_slli_epi32(subnormal, is_normal, _mm512_sub_epi32(e, one), 23));
}

// The factors of block `number`; head: the words before the codes.
template <typename Format>
[[gnu::always_inline]] inline __m512 StepsOfColumns(const __m512i* head, [[maybe_unused]] int64_t number) {
  if constexpr (kSharesHead<Format>) {  // as DotIQ4_XS::Factors
    const auto shift = static_cast<int>(number);
    const __m512i low = _mm512_srl_epi32(head[1], _mm_cvtsi32_si128(4 * shift));
    const __m512i high = _mm512_srl_epi32(head[0], _mm_cvtsi32_si128(16 + 2 * shift));
    const __m512i scales =
        _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)),
                        _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(3)), 4));
    return _mm512_mul_ps(HalvesToFloats(head[0]),
                         _mm512_cvtepi32_ps(_mm512_sub_epi32(scales, _mm512_set1_epi32(32))));
  } else if constexpr (requires { Format::Factors(nullptr); }) {
    return PowersOfTwo(head[0]);
  } else {
    return HalvesToFloats(head[0]);
  }
}

// Unpacks block `number` of a copy of a group.
template <typename Format>
[[gnu::always_inline]] inline void UnpackColumns(const std::byte* w, const Heads<Format>& heads,
                                                 int64_t number, ColumnBlock* block) {
  constexpr int64_t kStride = kCopyStride<kGroupBytes<Format>>;
  const std::byte* b = w + (kSharesHead<Format> ? 0 : number * Format::kBytes);
  __m512i head[4];
  if constexpr (Heads<Format>::kGathered) {
    head[0] = heads.Of(number);
  } else {
    TransposeWords<kStride>(b, head);  // the compiler drops what is not used
  }
  block->steps = StepsOfColumns<Format>(head, number);
  if constexpr (Format::kMinimum >= 0) block->minima = HalvesToFloats(_mm512_srli_epi32(head[0], 16));
  __m512i* words = block->words;
  if constexpr (requires { Format::kLow; }) {
    if constexpr (kSharesHead<Format>) b += number * (kDotBlock / 2);
    UnpackNibbles<kStride>(b + Format::kCodes, words);
    constexpr uint64_t kFlip = 0x8080808080808080;
    constexpr auto kLow = static_cast<int64_t>(Format::kLow ^ kFlip);
    constexpr auto kHigh = static_cast<int64_t>(Format::kHigh ^ kFlip);
    const __m512i table = _mm512_set4_epi64(kHigh, kLow, kHigh, kLow);
#pragma GCC unroll 8
    for (int j = 0; j < kWords; ++j) words[j] = _mm512_shuffle_epi8(table, words[j]);
  } else if constexpr (Format::kSigned) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    TransposeWords<kStride>(b + Format::kCodes, words);
    TransposeWords<kStride>(b + Format::kCodes + kDotBlock / 2, words + 4);
#pragma GCC unroll 8
    for (int j = 0; j < kWords; ++j) words[j] = _mm512_xor_si512(words[j], flip);
  } else {
    UnpackNibbles<kStride>(b + Format::kCodes, words);
  }
  if constexpr (Format::kFifthBits == 4) AddFifthBits(head[1], words);
  if constexpr (Format::kFifthBits == 2)
    AddFifthBits(_mm512_or_si512(_mm512_srli_epi32(head[0], 16), _mm512_slli_epi32(head[1], 16)), words);
}

// sums += products of four codes of each column with the four at x. Written as assembly because GCC 12 copies
// sums between registers around its own intrinsic.
inline void AddWords(__m512i weights, const int8_t* x, __m512i* sums) {
  using Word = int8_t[4];
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(*sums)
          : "v"(weights), "m"(*reinterpret_cast<const Word*>(x)));
}

// The sums of a row of x.
using ColumnSums = float[kGroupBlocks][kColumns];

// p, in a form that hides how it was computed. The compiler then addresses by p and constants. With an index
// register, an instruction takes two slots instead of one.
template <typename T>
inline T* Plain(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

// Adds the products of block b of the group with kRows rows of x to their sums.
template <int kRows, typename Format>
[[gnu::always_inline]] inline void AddColumnRows(const ColumnBlock& block, const DotGroup* x, int64_t b,
                                                 ColumnSums* row_sums) {
  constexpr int64_t kStride = sizeof(DotGroup);
  constexpr int64_t kFloats = kStride / sizeof(float);
  const int8_t* codes = Plain(x->codes + b % 4 * 2 * kDotBlock + b / 4 * kDotBlock / 2);
  const float* scales = Plain(x->scales + b);
  const float* x_sums = Plain(x->block_sums + b);
  const int32_t* starts = Plain(x->block_starts + b);
  float* sums = Plain((*row_sums)[b]);
  __m512i dots[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    dots[r] = _mm512_setzero_si512();
    if constexpr (Format::kLayout != DotLayout::kSums) dots[r] = _mm512_set1_epi32(starts[r * kFloats]);
  }
#pragma GCC unroll 8
  for (int j = 0; j < kWords; ++j) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      AddWords(block.words[j], codes + r * kStride + j % 4 * 4 + j / 4 * kDotBlock, &dots[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* sum = sums + r * kGroupBlocks * kColumns;
    const __m512 scale = _mm512_set1_ps(scales[r * kFloats]);
    const __m512 factor = _mm512_mul_ps(block.steps, scale);
    __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), factor, _mm512_load_ps(sum));
    if constexpr (Format::kMinimum >= 0) {
      const __m512 minima = _mm512_mul_ps(block.minima, scale);
      y = _mm512_fmadd_ps(minima, _mm512_set1_ps(x_sums[r * kFloats]), y);
    }
    _mm512_store_ps(sum, y);
  }
}

// Copies kBytes of some rows of weights; 64 bytes or more.
template <int64_t kBytes>
inline void CopyRows(const std::byte* w, int64_t w_stride, int64_t rows, std::byte* copy) {
  constexpr int64_t kVector = 64;
  for (int64_t c = 0; c < rows; ++c, w += w_stride, copy += kCopyStride<kBytes>) {
    for (int64_t i = 0; i + kVector <= kBytes; i += kVector)
      _mm512_store_si512(copy + i, _mm512_loadu_si512(w + i));
    constexpr int64_t kLast = kBytes - kVector;
    _mm512_storeu_si512(copy + kLast, _mm512_loadu_si512(w + kLast));
  }
}

// What a group of sixteen rows of weights is multiplied by, and what is fetched meanwhile.
struct ColumnGroup {
  const std::byte* w;  // a copy
  const DotGroup* x;
  int rows;
  const std::byte* next;  // the group to copy to next_copy, or null
  int64_t w_stride;
  std::byte* next_copy;
  const std::byte* ahead;  // what to prefetch, as much as the group has
};

template <typename Format>
[[gnu::noinline]] void AddColumnGroup(const ColumnGroup& g, ColumnSums* sums) {
  constexpr int64_t kBytes = Format::kBytes;
  constexpr int64_t kCacheLine = 64;
  constexpr int64_t kCopied = kColumns / kGroupBlocks;
  const std::byte* ahead = g.ahead;
  Heads<Format> heads;
  if constexpr (Heads<Format>::kGathered) heads.Gather(g.w);
  for (int64_t b = 0; b < kGroupBlocks; ++b) {
    ColumnBlock block;
    UnpackColumns<Format>(g.w, heads, b, &block);
    for (int64_t i = 0; i < kColumns * kBytes; i += kCacheLine) __builtin_prefetch(ahead + i, 0, 2);
    ahead += kColumns * kBytes;
    if (g.next != nullptr) {
      const int64_t row = b * kCopied;
      CopyRows<kGroupBytes<Format>>(g.next + row * g.w_stride, g.w_stride, kCopied,
                                    g.next_copy + row * kCopyStride<kGroupBytes<Format>>);
    }
    static_assert(kColumnTile < 32);
    int r = 0;
    if (g.rows & 16) AddColumnRows<16, Format>(block, g.x, b, sums), r += 16;
    if (g.rows & 8) AddColumnRows<8, Format>(block, g.x + r, b, sums + r), r += 8;
    if (g.rows & 4) AddColumnRows<4, Format>(block, g.x + r, b, sums + r), r += 4;
    if (g.rows & 2) AddColumnRows<2, Format>(block, g.x + r, b, sums + r), r += 2;
    if (g.rows & 1) AddColumnRows<1, Format>(block, g.x + r, b, sums + r);
  }
}

// The tree of SumOf.
inline __m512 SumOfColumns(const ColumnSums& sums) {
  const auto two = [&](int b) { return _mm512_add_ps(_mm512_load_ps(sums[b]), _mm512_load_ps(sums[b + 4])); };
  return _mm512_add_ps(_mm512_add_ps(two(0), two(2)), _mm512_add_ps(two(1), two(3)));
}

// Copies `blocks` blocks of some rows of weights. Missing rows and blocks have zero factors.
template <typename Format>
inline void CopyPart(const std::byte* w, int64_t w_stride, int64_t rows, int64_t blocks, std::byte* copy) {
  __builtin_memset(copy, 0, kColumns * kCopyStride<kGroupBytes<Format>>);
  const auto bytes = static_cast<size_t>(blocks * Format::kBytes);
  for (int64_t c = 0; c < rows; ++c)
    __builtin_memcpy(copy + c * kCopyStride<kGroupBytes<Format>>, w + c * w_stride, bytes);
}

// y = the sums of rows of x with `columns` rows of weights, + bias.
inline void StoreColumns(const ColumnSums* sums, int rows, int64_t columns, const float* bias, float* y,
                         int64_t y_stride) {
  const auto mask = static_cast<__mmask16>((1 << columns) - 1);
  const __m512 add = bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, bias);
  for (int r = 0; r < rows; ++r, y += y_stride)
    _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(SumOfColumns(sums[r]), add));
}

// The rows of weights [first, first + columns) with rows [i, i + rows) of x.
template <typename Format>
[[gnu::noinline]] void ColumnDots(const IntDotTask& t, int64_t first, int64_t columns, int64_t i, int rows) {
  alignas(64) ColumnSums sums[kColumnTile];
  // The group that is multiplied and the next one. A group is copied while the one before is multiplied,
  // because loads that take bytes of two stores wait until both have reached L1.
  alignas(64) std::byte copies[2][kColumns * kCopyStride<kGroupBytes<Format>>];
  const std::byte* w = t.w + first * t.w_stride;
  const std::byte* ahead = w + columns * t.w_stride;
  const DotGroup* x = t.x + i;
  const bool whole = columns == kColumns;
  int64_t left = t.count / kDotBlock;
  const auto copy = [&](int to) {
    if (whole && left >= kGroupBlocks) {
      CopyRows<kGroupBytes<Format>>(w, t.w_stride, kColumns, copies[to]);
    } else {
      CopyPart<Format>(w, t.w_stride, columns, left < kGroupBlocks ? left : kGroupBlocks, copies[to]);
    }
  };
  __builtin_memset(sums, 0, static_cast<size_t>(rows) * sizeof sums[0]);
  copy(0);
  for (int at = 0; left > 0; at ^= 1, x += t.x_rows, ahead += kColumns * kGroupBytes<Format>) {
    w += kGroupBytes<Format>;
    left -= kGroupBlocks;
    const bool beside = whole && left >= kGroupBlocks;
    if (left > 0 && !beside) copy(at ^ 1);
    AddColumnGroup<Format>({copies[at], x, rows, beside ? w : nullptr, t.w_stride, copies[at ^ 1], ahead},
                           sums);
  }
  StoreColumns(sums, rows, columns, t.bias == nullptr ? nullptr : t.bias + first,
               t.y + i * t.y_stride + first, t.y_stride);
}

// Calls dots(first row of weights, rows of weights, first row of x, rows of x) for all strips and tiles.
// Tiles have about the same number of rows.
template <typename Dots>
inline void ForTiles(const IntDotTask& t, const Dots& dots) {
  const int64_t tiles = (t.x_rows + kColumnTile - 1) / kColumnTile;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t i = t.x_rows * tile / tiles;
    const auto rows = static_cast<int>(t.x_rows * (tile + 1) / tiles - i);
    for (int64_t row = 0; row < t.rows; row += kColumns) {
      const int64_t left = t.rows - row;
      dots(row, left < kColumns ? left : kColumns, i, rows);
    }
  }
}
