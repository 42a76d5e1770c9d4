// Keys and values of one layer, with the prompt position of every row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"
#include "tensor/token_set.h"

namespace coppice {

// Rows are in order of position; a pruned layer simply has fewer. Keys are stored after RoPE at their
// original position, so nothing is recomputed when tokens are dropped. Not shared between sequences.
//
// Eviction may choose other rows in each kv head. Row i then holds tokens of different positions, one per kv
// head, in order of position within each; there are always as many rows in one head as in another.
class LayerCache {
 public:
  LayerCache(DType dtype, int kv_heads, int head_dim);

  // Makes room for `rows` in all; rows already there are kept.
  void Reserve(int64_t rows);

  struct Fresh {
    MutableTensorView keys;    // [positions.size(), width]
    MutableTensorView values;  // [positions.size(), width]
  };
  // Adds one row per position, which must ascend beyond the last one; the caller fills the views. Grows
  // geometrically where Reserve was not enough.
  Fresh Append(std::span<const int32_t> positions);
  // Adds rows among those that are there: positions ascend, and none of them has a row yet. Returns the new
  // rows, for the caller to fill through mutable_keys and mutable_values. Moves the rows behind them: O(rows).
  // Not where the kv heads hold different positions.
  std::vector<int32_t> Insert(std::span<const int32_t> positions);
  // Keeps these rows alone: one set for all kv heads, or one per kv head, of equal sizes. O(rows).
  void Keep(std::span<const TokenSet> rows);

  int64_t rows() const { return rows_; }
  bool ragged() const { return positions_.size() > 1; }  // the kv heads hold different positions
  // Of the rows, ascending; of kv head `head` where they differ.
  std::span<const int32_t> positions(int head = 0) const {
    return positions_[ragged() ? static_cast<size_t>(head) : 0];
  }
  // One list, or one per kv head.
  std::vector<std::span<const int32_t>> position_lists() const;
  // The rows of these positions, which ascend; those without a row are left out.
  std::vector<int32_t> RowsOf(std::span<const int32_t> positions) const;
  void SetPosition(int64_t row, int32_t position);  // the order must stay ascending; not where ragged

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
  void Grow(int64_t rows);  // makes room for `rows`, geometrically

  DType dtype_;
  int kv_heads_;
  int head_dim_;
  Tensor keys_;    // [capacity, width]
  Tensor values_;  // [capacity, width]
  int64_t rows_ = 0;
  std::vector<std::vector<int32_t>> positions_ = {{}};  // one list, or [kv_heads]
};

}  // namespace coppice
