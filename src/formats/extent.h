// The size of a tensor in a file, with overflow checks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/checked_math.h"
#include "tensor/dtype.h"

namespace coppice {

struct TensorExtent {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t bytes = 0;
};

// Folds a shape (outermost dimension first, none negative) into rows and columns. Returns nullopt if a
// product overflows or a row is not a whole number of blocks.
inline std::optional<TensorExtent> ExtentOf(DType type, std::span<const int64_t> shape) {
  TensorExtent extent{.rows = 1, .cols = shape.empty() ? 1 : shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    const auto rows = CheckedMul(extent.rows, shape[i]);
    if (!rows) return std::nullopt;
    extent.rows = *rows;
  }
  const DTypeInfo& info = Info(type);
  if (extent.cols % info.block_elements != 0) return std::nullopt;
  const auto row_bytes = CheckedMul(extent.cols / info.block_elements, info.block_bytes);
  const auto bytes = row_bytes ? CheckedMul(*row_bytes, extent.rows) : std::nullopt;
  if (!bytes || !CheckedMul(extent.rows, extent.cols)) return std::nullopt;
  extent.bytes = *bytes;
  return extent;
}

}  // namespace coppice
