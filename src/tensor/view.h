// Non-owning views of matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"

namespace coppice {

class DeviceMemory;

// A read-only matrix [rows, cols] of one type, with rows `stride` bytes apart. Everything in a decoder is a
// matrix: hidden states [tokens, d], queries [tokens, heads * head_dim], weights [outputs, inputs]. A vector
// is one row.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;              // bytes from one row to the next
  DeviceMemory* memory = nullptr;  // that `data` points into; null: host memory

  TensorView() = default;
  TensorView(const void* d, DType t, int64_t r, int64_t c) : TensorView(d, t, r, c, BytesOf(t, c)) {}
  TensorView(const void* d, DType t, int64_t r, int64_t c, int64_t s, DeviceMemory* m = nullptr)
      : data(static_cast<const std::byte*>(d)), dtype(t), rows(r), cols(c), stride(s), memory(m) {}

  bool empty() const { return rows == 0 || cols == 0; }

  // Row i as raw bytes, for any type.
  const std::byte* RowBytes(int64_t i) const { return data + i * stride; }

  // Row i as plain values; T must match `dtype`. Only in host memory.
  template <typename T>
  std::span<const T> Row(int64_t i) const;

  // Rows [begin, begin + count).
  TensorView Rows(int64_t begin, int64_t count) const {
    COPPICE_DCHECK(begin >= 0 && count >= 0 && begin + count <= rows);
    return {data + begin * stride, dtype, count, cols, stride, memory};
  }
  // Columns [begin, begin + count); both must be multiples of the block size.
  TensorView Cols(int64_t begin, int64_t count) const {
    COPPICE_DCHECK(begin >= 0 && count >= 0 && begin + count <= cols);
    return {data + BytesOf(dtype, begin), dtype, rows, count, stride, memory};
  }
};

// The writable counterpart. Converts implicitly to TensorView.
struct MutableTensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DeviceMemory* memory = nullptr;

  MutableTensorView() = default;
  MutableTensorView(void* d, DType t, int64_t r, int64_t c) : MutableTensorView(d, t, r, c, BytesOf(t, c)) {}
  MutableTensorView(void* d, DType t, int64_t r, int64_t c, int64_t s, DeviceMemory* m = nullptr)
      : data(static_cast<std::byte*>(d)), dtype(t), rows(r), cols(c), stride(s), memory(m) {}

  operator TensorView() const {
    return {data, dtype, rows, cols, stride, memory};
  }  // NOLINT: views convert freely

  std::byte* RowBytes(int64_t i) const { return data + i * stride; }
  template <typename T>
  std::span<T> Row(int64_t i) const;

  MutableTensorView Rows(int64_t begin, int64_t count) const {
    COPPICE_DCHECK(begin >= 0 && count >= 0 && begin + count <= rows);
    return {data + begin * stride, dtype, count, cols, stride, memory};
  }
  MutableTensorView Cols(int64_t begin, int64_t count) const {
    COPPICE_DCHECK(begin >= 0 && count >= 0 && begin + count <= cols);
    return {data + BytesOf(dtype, begin), dtype, rows, count, stride, memory};
  }
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};

template <typename T>
std::span<const T> TensorView::Row(int64_t i) const {
  COPPICE_DCHECK(memory == nullptr && dtype == DTypeOf<T>::value && i >= 0 && i < rows);
  return {reinterpret_cast<const T*>(data + i * stride), static_cast<size_t>(cols)};
}

template <typename T>
std::span<T> MutableTensorView::Row(int64_t i) const {
  COPPICE_DCHECK(memory == nullptr && dtype == DTypeOf<T>::value && i >= 0 && i < rows);
  return {reinterpret_cast<T*>(data + i * stride), static_cast<size_t>(cols)};
}

}  // namespace coppice
