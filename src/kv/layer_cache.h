// The keys and values of one layer, with the prompt position of every row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/device_memory.h"
#include "tensor/tensor.h"
#include "tensor/token_set.h"

namespace coppice {

// Rows are in order of position; a pruned layer has fewer. Keys are stored after RoPE at their original
// position, so dropping tokens recomputes nothing. A cache belongs to one sequence.
//
// Eviction may keep different rows for each kv head (a ragged cache). A row then holds one position per kv
// head, in ascending order within each head; every head has the same number of rows.
class LayerCache {
 public:
  // In host memory, or in `memory`, which must outlive the cache. A layer that does not attend has 0 kv_heads
  // and head_dim, and its cache no rows.
  LayerCache(DType dtype, int kv_heads, int head_dim, DeviceMemory* memory = nullptr);

  // Allocates capacity for `rows` rows in total and keeps those already there.
  void Reserve(int64_t rows);

  struct Fresh {
    MutableTensorView keys;    // [positions.size(), width]
    MutableTensorView values;  // [positions.size(), width]
  };
  // Appends one row per position; positions must ascend and exceed the last one. The caller fills the views.
  // Grows geometrically beyond what Reserve allocated.
  Fresh Append(std::span<const int32_t> positions);
  // Inserts one row per position; positions must ascend and have no row yet. Returns the new rows, which the
  // caller fills through mutable_keys and mutable_values. O(rows), because later rows move. Not for a ragged
  // cache.
  std::vector<int32_t> Insert(std::span<const int32_t> positions);
  // Append or Insert, whichever the positions need; returns the new rows.
  std::vector<int32_t> Add(std::span<const int32_t> positions);
  // Removes all rows and frees their memory.
  void Clear();
  // Removes the last `count` rows.
  void DropLast(int64_t count);
  // Keeps only these rows: one set for all kv heads, or one per kv head, all of equal size. O(rows).
  void Keep(std::span<const TokenSet> rows);

  int64_t rows() const { return rows_; }
  bool ragged() const { return positions_.size() > 1; }  // the kv heads hold different positions
  // Positions of the rows, ascending; those of kv head `head` in a ragged cache.
  std::span<const int32_t> positions(int head = 0) const {
    return positions_[ragged() ? static_cast<size_t>(head) : 0];
  }
  // One list, or one per kv head.
  std::vector<std::span<const int32_t>> position_lists() const;
  // The rows of these positions, which must ascend. Positions without a row are skipped. Not for a ragged
  // cache.
  std::vector<int32_t> RowsOf(std::span<const int32_t> positions) const;
  void SetPosition(int64_t row, int32_t position);  // must keep the order; not for a ragged cache

  TensorView keys() const { return keys_.view().Rows(0, rows()); }      // [rows, width]
  TensorView values() const { return values_.view().Rows(0, rows()); }  // [rows, width]
  MutableTensorView mutable_keys() { return keys_.mutable_view().Rows(0, rows()); }
  MutableTensorView mutable_values() { return values_.mutable_view().Rows(0, rows()); }
  DType dtype() const { return dtype_; }
  int64_t width() const { return int64_t{kv_heads_} * head_dim_; }
  int kv_heads() const { return kv_heads_; }
  int64_t bytes() const { return 2 * rows() * BytesOf(dtype_, width()); }

 private:
  void SetCapacity(int64_t rows);
  // Insert in a device's memory: row i becomes old row old_rows[i]. One pass over the rows, whatever their
  // number.
  void Reorder(std::span<const int32_t> old_rows);
  void Grow(int64_t rows);  // allocates capacity for `rows`, growing geometrically

  DType dtype_;
  int kv_heads_;
  int head_dim_;
  Tensor keys_;    // [capacity, width]
  Tensor values_;  // [capacity, width]
  int64_t rows_ = 0;
  std::vector<std::vector<int32_t>> positions_ = {{}};  // one list, or [kv_heads]
};

}  // namespace coppice
