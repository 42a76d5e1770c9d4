// Panel products on AMX tiles. A block is 64 rows of x, lying one after the other; a panel is four strips. Tiles are
// multiplied 2 x 2 at a time (sums in 0 to 3, rows in 4 and 5, strips in 6 and 7), for a range of K of 256 bytes: 16 KiB
// of rows and 16 KiB of weights, which stay in L1 while all four pairs of tiles pass, with 16 KiB of results. A tile
// unit that loads both sides from L2 waits for them: 64 bytes in every cycle.
//
// Codes leave the tiles after each range, which is a group, to be scaled; the AVX-512 units do that while the tile unit
// goes on.

constexpr int kTileRows = 64;
constexpr int kTileStrips = 4;
constexpr int64_t kTileStride = kTileStrips * kStripColumns;
constexpr int64_t kRangeBytes = 256;
static_assert(kRangeBytes == kTileGroup);

// Tiles 0 to 3 += 32 rows from `x` on, by two strips from `w` on (or one), over `bytes` of K.
template <bool kCodes, bool kTwo>
inline void MultiplyTileRange(const std::byte* x, int64_t row_bytes, const std::byte* w, int64_t strip_bytes,
                              int64_t bytes) {
  for (int64_t k = 0; k < bytes; k += 64) {
    LoadTile<4>(x + k, row_bytes);
    LoadTile<5>(x + 16 * row_bytes + k, row_bytes);
    LoadTile<6>(w + k * kStripColumns, 64);
    if constexpr (kTwo) LoadTile<7>(w + strip_bytes + k * kStripColumns, 64);
    if constexpr (kCodes) {
      MultiplyCodes<0, 4, 6>();
      MultiplyCodes<2, 5, 6>();
    } else {
      MultiplyTiles<0, 4, 6>();
      MultiplyTiles<2, 5, 6>();
    }
    if constexpr (!kTwo) continue;
    if constexpr (kCodes) {
      MultiplyCodes<1, 4, 7>();
      MultiplyCodes<3, 5, 7>();
    } else {
      MultiplyTiles<1, 4, 7>();
      MultiplyTiles<3, 5, 7>();
    }
  }
}

// One range of K of a block for 32 rows from `row` on and two strips (or one) from `strip` on, into y.
template <bool kTwo>
inline void AddCodeRange(const PanelBlock& b, int64_t range, int64_t bytes, int row, int strip, float* y) {
  const int64_t depth = b.task.depth;
  const int64_t strip_bytes = depth * kStripColumns;
  const int64_t k = range * kRangeBytes;
  alignas(64) __m512i sums[4][16];
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
  MultiplyTileRange<true, kTwo>(b.x + row * depth + k, depth,
                                b.task.w + strip * strip_bytes + k * kStripColumns, strip_bytes, bytes);
  StoreTile<0>(sums[0], 64);
  StoreTile<2>(sums[1], 64);
  AddScaled<32>(b, range, kTileRows, strip, row, sums[0], y, kTileStride);
  if constexpr (!kTwo) return;
  StoreTile<1>(sums[2], 64);
  StoreTile<3>(sums[3], 64);
  AddScaled<32>(b, range, kTileRows, strip + 1, row, sums[2], y, kTileStride);
}

template <bool kTwo>
inline void AddBf16Range(const PanelBlock& b, int64_t range, int64_t bytes, int row, int strip, float* y) {
  constexpr int64_t kRowBytes = kTileStride * 4;
  const int64_t depth_bytes = b.task.depth * 2;
  const int64_t strip_bytes = depth_bytes * kStripColumns;
  const int64_t k = range * kRangeBytes;
  float* upper = y + row * kTileStride + strip * kStripColumns;
  float* lower = upper + 16 * kTileStride;
  LoadTile<0>(upper, kRowBytes);
  LoadTile<2>(lower, kRowBytes);
  if constexpr (kTwo) {
    LoadTile<1>(upper + kStripColumns, kRowBytes);
    LoadTile<3>(lower + kStripColumns, kRowBytes);
  }
  MultiplyTileRange<false, kTwo>(b.x + row * depth_bytes + k, depth_bytes,
                                 b.task.w + strip * strip_bytes + k * kStripColumns, strip_bytes, bytes);
  StoreTile<0>(upper, kRowBytes);
  StoreTile<2>(lower, kRowBytes);
  if constexpr (!kTwo) return;
  StoreTile<1>(upper + kStripColumns, kRowBytes);
  StoreTile<3>(lower + kStripColumns, kRowBytes);
}

template <bool kCodes>
void MultiplyTileBlock(const PanelBlock& b) {
  alignas(64) float y[kTileRows * kTileStride] = {};
  const int rows = static_cast<int>(b.task.rows - b.first_row);
  const int strips = b.task.gated ? kTileStrips : static_cast<int>(StripsOf(b.task.columns));
  const int64_t depth_bytes = b.task.depth * (kCodes ? 1 : 2);
  for (int64_t range = 0; range * kRangeBytes < depth_bytes; ++range) {
    const int64_t left = depth_bytes - range * kRangeBytes;
    const int64_t bytes = left < kRangeBytes ? left : kRangeBytes;
    for (int strip = 0; strip < strips; strip += 2) {
      for (int row = 0; row < kTileRows && row < rows; row += 32) {
        const bool two = strip + 1 < strips;
        if constexpr (kCodes) {
          (two ? AddCodeRange<true> : AddCodeRange<false>)(b, range, bytes, row, strip, y);
        } else {
          (two ? AddBf16Range<true> : AddBf16Range<false>)(b, range, bytes, row, strip, y);
        }
      }
    }
  }
  WriteBlock(b, kTileRows, y, kTileStride);
}

template <bool kCodes>
void MultiplyTilePanel(const PanelTask& task) {
  ConfigureTiles();
  for (int64_t i = 0; i * kTileRows < task.rows; ++i) {
    MultiplyTileBlock<kCodes>(BlockOf(task, i, kTileRows, kCodes ? 1 : 2, kTileGroup));
  }
  ReleaseTiles();
}
