// How a call of attention is divided: tiles of rows, chunks of keys, the keys that each query sees, and
// packed keys and values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernel_table.h"

namespace coppice::cpu {

// The plan of one call; it refers to the call's input, which must outlive it.
class AttentionPlan {
 public:
  // Without `codes`, the shape's permission to round is not used.
  AttentionPlan(const AttentionInput& in, const KernelTable& kernels, bool codes = true);

  const AttentionKernels& kernels() const { return *kernels_; }
  int64_t tiles() const { return tiles_; }
  int64_t group() const { return group_; }

  AttentionTile Tile(int64_t kv_head, int64_t tile) const;

  bool Packs() const { return PackingPays(shape_, *kernels_, tiles_); }

  // Packs the key tiles that some query sees and that `to` lacks. After that, Tile() refers to the packed
  // data.
  void Pack(const ThreadPool& pool, PackedCache& to);

  // Chunks [first, last) hold every key that a row of the tile sees. Visible ranges ascend with the queries.
  int64_t FirstChunk(const AttentionTile& t) const {
    return begin_[static_cast<size_t>(t.first_row / group_)] / kKeyChunk;
  }
  int64_t LastChunk(const AttentionTile& t) const {
    const int64_t end = end_[static_cast<size_t>((t.first_row + t.rows - 1) / group_)];
    return (end + kKeyChunk - 1) / kKeyChunk;
  }
  int64_t ChunkEnd(int64_t chunk) const { return std::min<int64_t>((chunk + 1) * kKeyChunk, in_.keys.rows); }

 private:
  int64_t HeadBytes(const PackedCache& packed) const;
  int64_t PackedOffset(int64_t kv_head) const { return (in_.first_kv_head + kv_head) * HeadBytes(*packed_); }

  const AttentionInput& in_;
  AttentionShape shape_;
  const AttentionKernels* kernels_ = nullptr;
  bool int8_values_ = false;
  int key_bits_ = 0;
  int64_t group_ = 1;
  int64_t rows_ = 0;
  int64_t tiles_ = 0;
  const PackedCache* packed_ = nullptr;
  std::vector<int32_t> begin_;
  std::vector<int32_t> end_;
};

}  // namespace coppice::cpu
