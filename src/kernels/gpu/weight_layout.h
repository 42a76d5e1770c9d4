// Weights in the layouts that the kernels read (kernels/README.md, Weights).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/view.h"

namespace coppice::gpu {

// The arrays of one weight, one after the other in one allocation.
struct WeightLayout {
  std::string_view form;  // "bf16", "q8", "q4", "q8k", "q4k"
  int64_t rows = 0;       // padded to a multiple of 128
  int64_t k = 0;          // inputs, padded to a multiple of 128
  int bits = 16;          // of a code
  bool super = false;     // super-blocks of 256 values
  int64_t group = 0;      // values with one factor; 0 without super-blocks
  bool minima = false;
  float zero = 0;
  // Where each array begins, and its bytes for one row.
  struct Array {
    int64_t offset = 0;
    int64_t row_bytes = 0;
  };
  Array codes, scales, mins, groups, group_mins;
  int64_t bytes = 0;
};

// The layout of a weight [rows, cols] that a file holds as `type`. All types of tensor/dtype.h have one.
WeightLayout LayoutOf(DType type, int64_t rows, int64_t cols);

// Fills `to` [layout.bytes] with the weight `w`, which is in host memory. Padding becomes 0.
void Repack(const TensorView& w, const WeightLayout& layout, std::span<std::byte> to);

}  // namespace coppice::gpu
