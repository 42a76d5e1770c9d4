// Cache rows as whole tiles of bf16, for kernels with bf16 factors. Needs AVX512_BF16.

struct CacheRows {
  const std::byte* first;
  int64_t stride;
};

// Q8_0 values rounded to bf16, whose factor has 8 bits, one more than the magnitude of a code.
inline void NarrowQ8(const std::byte* row, int64_t count, uint16_t* y) {
  for (int64_t c = 0; c < count; c += Q8_0::kValues, row += Q8_0::kBytes) {
    const V d = V::Set(HalfToFloat(row));
    const V low = d * Codes::LoadSigned(row + 2).ToFloat();
    const V high = d * Codes::LoadSigned(row + 18).ToFloat();
    low.StoreBf16(y + c);  // without vcvtne2ps2bf16, which CPUs with VNNI alone lack
    high.StoreBf16(y + c + V::kLanes);
  }
}

// Rows [begin, begin + kKeyTile) of the cache as a whole tile: in place if all rows exist, are bf16 and need
// no column padding; else copied and zero-padded.
inline CacheRows WholeRows(const CacheRows& cache, const AttentionTile& tile, int64_t begin, int64_t end,
                           uint16_t* copy) {
  const std::byte* from = cache.first + begin * cache.stride;
  const int64_t dim = PaddedDim(tile.head_dim);
  if (tile.cache_type == 2 && begin + kKeyTile <= end && dim == tile.head_dim) return {from, cache.stride};
  for (int64_t j = 0; j < kKeyTile; ++j) {
    uint16_t* to = copy + j * dim;
    int64_t c = 0;
    if (begin + j < end) {
      const std::byte* row = from + j * cache.stride;
      if (tile.cache_type == kQ8Cache) {
        NarrowQ8(row, tile.head_dim, to);
      } else {
        __builtin_memcpy(to, row, static_cast<size_t>(tile.head_dim) * 2);
      }
      c = tile.head_dim;
    }
    for (; c < dim; ++c) to[c] = 0;
  }
  return {reinterpret_cast<const std::byte*>(copy), dim * 2};
}

inline const std::byte* PackedKeysAt(const AttentionTile& tile, int64_t begin) {
  return tile.packed_keys + PackedTileOffset(tile, begin, tile.head_dim);
}

// The keys of the tile at `begin`: packed, in place, or copied.
inline CacheRows KeysAt(const AttentionTile& tile, int64_t begin, int64_t end, uint16_t* copy) {
  if (tile.packed_keys == nullptr) return WholeRows({tile.keys, tile.key_stride}, tile, begin, end, copy);
  return {PackedKeysAt(tile, begin), 2 * PaddedDim(tile.head_dim)};
}

// The packed values of the tile at `begin`, or null.
inline const std::byte* PackedValuesAt(const AttentionTile& tile, int64_t begin) {
  if (tile.packed_values == nullptr) return nullptr;
  return tile.packed_values + PackedTileOffset(tile, begin, tile.head_dim);
}

// Packs one tile as `pack_values(rows, dim)` and `pack_keys(rows, dim)` write it. Rows that cannot be read in
// place are copied to `keys`, the room of the packed keys: first the values, then the keys.
template <typename PackValues, typename PackKeys>
inline void PackCacheTile(const AttentionTile& cache, int64_t begin, int64_t end, std::byte* keys,
                          const PackValues& pack_values, const PackKeys& pack_keys) {
  const int64_t dim = PaddedDim(cache.head_dim);
  uint16_t* copy = reinterpret_cast<uint16_t*>(keys);
  pack_values(WholeRows({cache.values, cache.value_stride}, cache, begin, end, copy), dim);
  pack_keys(WholeRows({cache.keys, cache.key_stride}, cache, begin, end, copy), dim);
}

// Keys of a packed tile in bf16: [kKeyTile][dim], without gaps.
inline void PackPlainKeys(const CacheRows& rows, int64_t dim, std::byte* keys) {
  if (rows.first == keys) return;
  for (int64_t j = 0; j < kKeyTile; ++j) {
    __builtin_memcpy(keys + j * 2 * dim, rows.first + j * rows.stride, static_cast<size_t>(2 * dim));
  }
}
