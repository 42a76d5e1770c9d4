// Panel products on AMX tiles. A block is 64 rows of x, a panel is four strips of weights. The kernel
// multiplies 2 x 2 tiles at a time: sums are in tiles 0 to 3, rows in 4 and 5, strips in 6 and 7.
//
// L1: the kernel works on one range of K at a time, 256 bytes of bf16 or one group of codes. A range has 16
// KiB of rows (8 with codes) and the same of weights. Both stay in L1, with 16 KiB of sums, while the kernel
// multiplies all pairs of tiles. If both came from L2, the tile unit would need 64 bytes per cycle and stall.
//
// L2: one side stays there, and the other is streamed through it. Streaming costs 1024 / n bytes per cycle if
// n rows (or columns) stay, in int8 as in bf16. If a panel's 64 columns stayed, that would be 16 bytes per
// cycle and core, more than the last-level cache delivers. So rows stay (PanelKernels::x_bytes), and panels
// are streamed and prefetched.
//
// After each range of codes the sums must be scaled. The AVX-512 units do this while the tile unit
// multiplies the next tiles. The kernel spreads this work over the steps, a few rows after each, because all
// of it in one place would fill the reorder window.
//
// These counts are calculated (16 cycles for a product of tiles); the kernels have run in an emulator only.

constexpr int kTileRows = 64;
constexpr int kTileStrips = 4;
constexpr int64_t kTileStride = kTileStrips * kStripColumns;
template <bool kCodes>
constexpr int64_t kRangeBytes = kCodes ? kTileGroup : 256;
constexpr int64_t kTileCacheBytes = 1 << 20;  // half of the L2 cache of every CPU with AMX

// Adds to tiles 0 to 3 the products of 32 rows at `x` and two strips (or one) at `w`, over `bytes` of K. In
// both, 16 rows or columns take `strip_bytes`. Calls `between` after each step of 64 bytes.
template <bool kCodes, bool kTwo, typename Between>
inline void MultiplyTileRange(const std::byte* x, const std::byte* w, int64_t strip_bytes, int64_t bytes,
                              const Between& between) {
  for (int64_t k = 0; k < bytes; k += 64) {
    LoadTile<4>(x + k * 16, 64);
    LoadTile<5>(x + strip_bytes + k * 16, 64);
    LoadTile<6>(w + k * 16, 64);
    if constexpr (kTwo) LoadTile<7>(w + strip_bytes + k * 16, 64);
    if constexpr (kCodes) {
      MultiplyCodes<0, 4, 6>();
      MultiplyCodes<2, 5, 6>();
    } else {
      MultiplyTiles<0, 4, 6>();
      MultiplyTiles<2, 5, 6>();
    }
    if constexpr (kTwo && kCodes) {
      MultiplyCodes<1, 4, 7>();
      MultiplyCodes<3, 5, 7>();
    } else if constexpr (kTwo) {
      MultiplyTiles<1, 4, 7>();
      MultiplyTiles<3, 5, 7>();
    }
    between();
  }
}

// 32 rows and two strips (or one) of a block, over one range of K.
struct TilePart {
  int64_t range;
  int64_t bytes;  // of K
  int row;        // the first
  int strip;
  bool two;
};

// Sums of codes that have left the tiles and are not yet added to the block's results.
class PendingSums {
 public:
  PendingSums(const PanelBlock& block, float* y) : block_(block), y_(y) {}

  // The buffer for the next part's sums, [strip][32 rows][16]; not the one with pending sums.
  __m512i* Free() { return sums_[1 - at_]; }
  // Declares the sums in Free() pending.
  void Begin(const TilePart& part) {
    at_ = 1 - at_;
    part_ = part;
    done_ = 0;
  }
  // Adds at most `count` more rows.
  void Add(int count) {
    if (done_ == kRows) return;
    const int end = done_ + count < kRows ? done_ + count : kRows;
    part_.two ? AddRows<2>(end) : AddRows<1>(end);
    done_ = end;
  }
  void AddAll() { Add(kRows); }

 private:
  static constexpr int kRows = 32;

  template <int kStrips>
  void AddRows(int end) {
    const float* w = block_.task.w_scales + (part_.strip * block_.groups + part_.range) * kStripColumns;
    const float* x = block_.x_scales + part_.range * kTileRows + part_.row;
    float* to = y_ + part_.row * kTileStride + part_.strip * kStripColumns;
    __m512 scales[kStrips];
    for (int s = 0; s < kStrips; ++s) scales[s] = _mm512_loadu_ps(w + s * block_.groups * kStripColumns);
    for (int r = done_; r < end; ++r) {
      const __m512 row_scale = _mm512_set1_ps(x[r]);
      for (int s = 0; s < kStrips; ++s) {
        float* y = to + r * kTileStride + s * kStripColumns;
        const __m512 sum = _mm512_cvtepi32_ps(sums_[at_][s * kRows + r]);
        _mm512_store_ps(y, _mm512_fmadd_ps(_mm512_mul_ps(sum, row_scale), scales[s], _mm512_load_ps(y)));
      }
    }
  }

  const PanelBlock& block_;
  float* y_;
  TilePart part_ = {};
  int done_ = kRows;  // rows of the part that have been added
  int at_ = 0;
  alignas(64) __m512i sums_[2][2 * kRows];
};

template <bool kTwo>
inline void MultiplyCodePart(const PanelBlock& b, const TilePart& part, PendingSums& pending) {
  constexpr int kRowsPerStep = 32 / (kRangeBytes<true> / 64);
  const int64_t depth = b.task.depth;
  const int64_t strip_bytes = depth * 16;
  const int64_t k = part.range * kRangeBytes<true> * 16;
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
  MultiplyTileRange<true, kTwo>(b.x + part.row * depth + k, b.task.w + part.strip * strip_bytes + k,
                                strip_bytes, part.bytes, [&] { pending.Add(kRowsPerStep); });
  pending.AddAll();  // needed if the range was short
  __m512i* sums = pending.Free();
  StoreTile<0>(sums, 64);
  StoreTile<2>(sums + 16, 64);
  if constexpr (kTwo) {
    StoreTile<1>(sums + 32, 64);
    StoreTile<3>(sums + 48, 64);
  }
  pending.Begin(part);
}

template <bool kTwo>
inline void AddBf16Part(const PanelBlock& b, const TilePart& part, float* y) {
  constexpr int64_t kRowBytes = kTileStride * 4;
  const int64_t depth_bytes = b.task.depth * 2;
  const int64_t strip_bytes = depth_bytes * 16;
  const int64_t k = part.range * kRangeBytes<false> * 16;
  float* upper = y + part.row * kTileStride + part.strip * kStripColumns;
  float* lower = upper + 16 * kTileStride;
  LoadTile<0>(upper, kRowBytes);
  LoadTile<2>(lower, kRowBytes);
  if constexpr (kTwo) {
    LoadTile<1>(upper + kStripColumns, kRowBytes);
    LoadTile<3>(lower + kStripColumns, kRowBytes);
  }
  MultiplyTileRange<false, kTwo>(b.x + part.row * depth_bytes + k, b.task.w + part.strip * strip_bytes + k,
                                 strip_bytes, part.bytes, [] {});
  StoreTile<0>(upper, kRowBytes);
  StoreTile<2>(lower, kRowBytes);
  if constexpr (!kTwo) return;
  StoreTile<1>(upper + kStripColumns, kRowBytes);
  StoreTile<3>(lower + kStripColumns, kRowBytes);
}

// Prefetches this block's share of a range of the thread's next panel into L2. The weights come from the
// last-level cache or from memory, and requesting a whole panel at once would stall the first block.
inline void PrefetchNextPanel(const PanelBlock& b, int64_t from_byte, int64_t bytes, int64_t depth_bytes) {
  if (b.task.next_w == nullptr) return;
  const int64_t blocks = (b.task.rows + kTileRows - 1) / kTileRows;
  const int64_t block = b.first_row / kTileRows;
  const int64_t piece = bytes * kStripColumns;  // bytes per strip
  const int64_t begin = piece * block / blocks / kCacheLine * kCacheLine;
  const int64_t end = piece * (block + 1) / blocks;
  for (int strip = 0; strip < kTileStrips; ++strip) {
    const std::byte* from = b.task.next_w + (strip * depth_bytes + from_byte) * kStripColumns;
    for (int64_t i = begin; i < end; i += kCacheLine) __builtin_prefetch(from + i, 0, 2);
  }
}

template <bool kCodes>
void MultiplyTileBlock(const PanelBlock& b) {
  alignas(64) float y[kTileRows * kTileStride] = {};
  [[maybe_unused]] PendingSums pending(b, y);
  const int64_t rows = b.task.rows - b.first_row;
  const int64_t strips = b.task.gated ? kTileStrips : StripsOf(b.task.columns);
  const int64_t depth_bytes = b.task.depth * (kCodes ? 1 : 2);
  const int halves = rows > 32 ? 2 : 1;
  const int parts = static_cast<int>((strips + 1) / 2) * halves;
  constexpr int64_t kBytes = kRangeBytes<kCodes>;
  for (int64_t range = 0; range * kBytes < depth_bytes; ++range) {
    const int64_t left = depth_bytes - range * kBytes;
    const int64_t bytes = left < kBytes ? left : kBytes;
    PrefetchNextPanel(b, range * kBytes, bytes, depth_bytes);
    for (int i = 0; i < parts; ++i) {
      // Codes alternate direction, so that a range starts with the results that the last part left in L1.
      // Floats would be loaded while they are still being stored.
      const int at = !kCodes || range % 2 == 0 ? i : parts - 1 - i;
      const int strip = at / halves * 2;
      const TilePart part = {range, bytes, at % halves * 32, strip, strip + 1 < strips};
      if constexpr (kCodes) {
        (part.two ? MultiplyCodePart<true> : MultiplyCodePart<false>)(b, part, pending);
      } else {
        (part.two ? AddBf16Part<true> : AddBf16Part<false>)(b, part, y);
      }
    }
  }
  if constexpr (kCodes) pending.AddAll();
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
