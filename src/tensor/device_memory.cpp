#include "tensor/device_memory.h"

#include <cstring>

namespace coppice {

namespace {

DeviceMemory* DeviceOf(const TensorView& from, const TensorView& to) {
  return to.memory != nullptr ? to.memory : from.memory;
}

}  // namespace

void CopyRows(const TensorView& from, const MutableTensorView& to) {
  if (from.rows == 0 && to.rows == 0) return;  // of any width: a tensor that was never filled has none
  COPPICE_CHECK(from.dtype == to.dtype && from.rows == to.rows && from.cols == to.cols);
  if (from.empty()) return;
  if (DeviceMemory* device = DeviceOf(from, to)) return device->Copy(from, to);
  const auto row_bytes = static_cast<size_t>(BytesOf(from.dtype, from.cols));
  if (from.stride == to.stride && from.stride == static_cast<int64_t>(row_bytes)) {
    std::memmove(to.data, from.data, row_bytes * static_cast<size_t>(from.rows));
    return;
  }
  const bool backwards = to.data > from.data;  // an overlap must not be overwritten before it is read
  for (int64_t i = 0; i < from.rows; ++i) {
    const int64_t row = backwards ? from.rows - 1 - i : i;
    std::memmove(to.RowBytes(row), from.RowBytes(row), row_bytes);
  }
}

// Where the views span whole rows of a matrix, it moves a run of consecutive rows at a time.
void ZeroRows(const MutableTensorView& to) {
  if (to.rows == 0 || to.cols == 0) return;
  if (to.memory != nullptr) return to.memory->Zero(to);
  const auto row_bytes = static_cast<size_t>(BytesOf(to.dtype, to.cols));
  if (to.stride == static_cast<int64_t>(row_bytes)) {
    std::memset(to.data, 0, row_bytes * static_cast<size_t>(to.rows));
    return;
  }
  for (int64_t i = 0; i < to.rows; ++i) std::memset(to.RowBytes(i), 0, row_bytes);
}

void KeepRows(const TensorView& from, std::span<const int32_t> rows, const MutableTensorView& to) {
  COPPICE_CHECK(from.dtype == to.dtype && from.cols == to.cols && to.rows == std::ssize(rows));
  if (from.memory != nullptr) return from.memory->Gather(from, rows, to);
  const auto count = std::ssize(rows);
  const auto row_bytes = static_cast<size_t>(BytesOf(from.dtype, from.cols));
  const bool whole = static_cast<int64_t>(row_bytes) == from.stride && from.stride == to.stride;
  for (int64_t i = 0, run = 1; i < count; i += run, run = 1) {
    const int64_t row = rows[static_cast<size_t>(i)];
    if (whole) {
      while (i + run < count && rows[static_cast<size_t>(i + run)] == row + run) ++run;
    }
    if (from.RowBytes(row) == to.RowBytes(i)) continue;
    std::memmove(to.RowBytes(i), from.RowBytes(row), row_bytes * static_cast<size_t>(run));
  }
}

HostRows::HostRows(const TensorView& rows) : rows_(rows) {
  if (rows.memory == nullptr) return;
  copy_.emplace(rows.dtype, rows.rows, rows.cols);
  if (!rows.empty()) rows.memory->Copy(rows, copy_->mutable_view());
}

}  // namespace coppice
