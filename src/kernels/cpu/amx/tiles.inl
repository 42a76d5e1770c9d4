// The tile instructions, as inline assembly with a full memory clobber. The intrinsics of GCC 12 tell the
// compiler neither that _tile_loadconfig reads all 64 bytes (GCC PR 114098: the stores that fill the
// configuration are dropped, and the first load is a SIGILL) nor that _tile_loadd reads memory at all.

struct TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Configures all eight tiles with 16 rows of 64 bytes: 16 x 16 fp32 sums, 16 x 32 bf16 factors.
inline void ConfigureTiles() {
  TileConfig config = {};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = 64;
    config.rows[t] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

// Releases the 8 KiB of tile state, so that the thread's next context switch need not save it.
inline void ReleaseTiles() { __asm__ volatile("tilerelease" : : : "memory"); }

template <int kTile>
inline void ZeroTile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
inline void LoadTile(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void StoreTile(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}

// sums [16, 16] += a [16, 32] b, with b's rows in pairs: element (k, n) at [k / 2][n][k % 2].
template <int kSums, int kA, int kB>
inline void MultiplyTiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

// sums [16, 16] int32 += a [16, 64] int8 b, with b's rows in fours: element (k, n) at [k / 4][n][k % 4].
template <int kSums, int kA, int kB>
inline void MultiplyCodes() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}
