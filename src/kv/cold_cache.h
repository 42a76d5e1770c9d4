// Keys and values of a whole sequence that are in the cold tier, by layer and block of positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/cold_store.h"
#include "kv/layer_cache.h"

namespace coppice {

// A block is the positions [b * block, (b + 1) * block) of the prompt, or those of them that have keys in the
// layer. Its record is its keys, then its values, in order of position. A block is written once: what is in
// the store stays valid when the block is loaded, because keys and values of a token never change; a block
// that gained tokens since is written anew.
class ColdCache {
 public:
  ColdCache(std::unique_ptr<ColdStore> store, int layers, int block);

  int block() const { return block_; }
  // Takes the rows of these blocks (ascending) out of the layer's hot cache; begins to write those that the
  // store lacks. What the hot cache gained of a block that is cold joins its record.
  void Offload(int layer, std::span<const int32_t> blocks, LayerCache& hot);
  // Begins to read blocks that are cold in the layer.
  void Prefetch(int layer, std::span<const int32_t> blocks);
  // Puts the rows of blocks that are cold back into the hot cache; waits for them. Blocks that are not cold
  // are left alone.
  void Load(int layer, std::span<const int32_t> blocks, LayerCache& hot);

  bool IsCold(int layer, int32_t block) const;
  // Positions of the layer that are cold, ascending.
  std::vector<int32_t> ColdPositions(int layer) const;
  int64_t bytes() const { return cold_bytes_; }        // that only the cold tier holds
  int64_t blocks_written() const { return written_; }  // transfers since the sequence began
  int64_t blocks_loaded() const { return loaded_; }
  std::string_view kind() const { return store_->kind(); }

 private:
  struct Block {
    int64_t slot = -1;               // in the store, or -1
    bool cold = false;               // not in the hot cache
    std::vector<int32_t> positions;  // of the record
  };
  Block& At(int layer, int32_t block);
  // Writes a block's rows [first, first + positions.size()) of the hot cache, unless the store has them.
  void Store(Block& block, int64_t first, std::span<const int32_t> positions, const LayerCache& hot);
  // [first, end) of the hot cache.
  std::pair<int32_t, int32_t> RowsOfBlock(int32_t block, const LayerCache& hot) const;
  std::vector<int32_t> BlocksInBoth(int layer, std::span<const int32_t> blocks, const LayerCache& hot) const;

  std::unique_ptr<ColdStore> store_;
  int block_;
  std::vector<std::byte> record_;           // scratch
  std::vector<std::vector<Block>> layers_;  // [layers][blocks]
  int64_t slots_ = 0;
  int64_t cold_bytes_ = 0;
  int64_t written_ = 0;
  int64_t loaded_ = 0;
};

}  // namespace coppice
