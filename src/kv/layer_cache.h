// Keys and values of one layer, with the prompt position of every row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace coppice {

// Rows are in order of position; a pruned layer simply has fewer. Keys are stored after RoPE at their
// original position, so nothing moves when tokens are dropped. Not shared between sequences.
class LayerCache {
 public:
  // `width`: kv_heads * head_dim.
  LayerCache(DType dtype, int64_t width) : dtype_(dtype), width_(width) {}

  // Makes room for `rows` in all; rows already there are kept.
  void Reserve(int64_t rows);

  struct Fresh {
    MutableTensorView keys;    // [positions.size(), width]
    MutableTensorView values;  // [positions.size(), width]
  };
  // Adds one row per position, which must ascend beyond the last one; the caller fills the views. Grows
  // geometrically where Reserve was not enough.
  Fresh Append(std::span<const int32_t> positions);

  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  std::span<const int32_t> positions() const { return positions_; }
  TensorView keys() const { return keys_.view().Rows(0, rows()); }      // [rows, width]
  TensorView values() const { return values_.view().Rows(0, rows()); }  // [rows, width]
  int64_t bytes() const { return 2 * rows() * BytesOf(dtype_, width_); }

 private:
  DType dtype_;
  int64_t width_;
  Tensor keys_;    // [capacity, width]
  Tensor values_;  // [capacity, width]
  std::vector<int32_t> positions_;
};

}  // namespace coppice
