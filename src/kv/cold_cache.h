// The keys and values of one sequence that are in the cold tier, by layer and block of positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/layer_cache.h"
#include "tensor/record_store.h"

namespace coppice {

// Block b covers the prompt positions [b * block, (b + 1) * block); its record holds the keys and then the
// values of those that the layer has, in ascending order. The keys and values of a token never change, so a
// record is written once and stays valid after the block is loaded. Only a block that has gained tokens since
// is written again.
class ColdCache {
 public:
  ColdCache(std::unique_ptr<RecordStore> store, int layers, int block);

  int block() const { return block_; }
  // Moves the rows of these blocks (ascending) out of the layer's hot cache and starts writing those that the
  // store lacks. Rows that the hot cache gained for a cold block are merged into its record.
  void Offload(int layer, std::span<const int32_t> blocks, LayerCache& hot);
  // Starts reading those of these blocks that are cold in the layer.
  void Prefetch(int layer, std::span<const int32_t> blocks);
  // Waits for those of these blocks (ascending) that are cold and inserts their rows into the hot cache.
  void Load(int layer, std::span<const int32_t> blocks, LayerCache& hot);

  bool IsCold(int layer, int32_t block) const;
  // Positions of the layer's cold blocks, ascending.
  std::vector<int32_t> ColdPositions(int layer) const;
  int64_t bytes() const { return cold_bytes_; }        // bytes that only the cold tier holds
  int64_t blocks_written() const { return written_; }  // since the sequence began
  int64_t blocks_loaded() const { return loaded_; }
  std::string_view kind() const { return store_->kind(); }

 private:
  struct Block {
    int64_t slot = -1;               // in the store; -1 if it was never written
    bool cold = false;               // the rows are not in the hot cache
    std::vector<int32_t> positions;  // of the rows in the record
  };
  Block& At(int layer, int32_t block);
  // Rows [first, first + positions.size()) of the hot cache, which are to be written.
  struct Leaving {
    Block* block;
    int64_t first;
    std::span<const int32_t> positions;
  };
  void Store(std::span<const Leaving> leaving, const LayerCache& hot);
  void StoreTogether(std::span<const Leaving> leaving, const LayerCache& hot);  // as one list of slots
  // The rows [first, end) of the hot cache that belong to the block.
  std::pair<int32_t, int32_t> RowsOfBlock(int32_t block, const LayerCache& hot) const;
  std::vector<int32_t> BlocksInBoth(int layer, std::span<const int32_t> blocks, const LayerCache& hot) const;

  std::unique_ptr<RecordStore> store_;
  int block_;
  std::vector<std::vector<Block>> layers_;  // [layers][blocks]
  int64_t slots_ = 0;
  int64_t cold_bytes_ = 0;
  int64_t written_ = 0;
  int64_t loaded_ = 0;
};

}  // namespace coppice
