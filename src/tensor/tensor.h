// Tensor: a matrix that owns its memory.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/view.h"

namespace coppice {

// A dense row-major matrix [rows, cols], 64-byte aligned, move-only. Taking a view of a temporary does not
// compile. Only Zeros() initialises the memory. It lives in host memory, or in a device's (`memory`), which
// must outlive it.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(DeviceMemory* memory) : device_(memory) {}  // empty
  Tensor(DType dtype, int64_t rows, int64_t cols, DeviceMemory* memory = nullptr);
  static Tensor Zeros(DType dtype, int64_t rows, int64_t cols, DeviceMemory* memory = nullptr);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  Tensor Clone() const;  // in the same memory

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t bytes() const { return BytesOf(dtype_, cols_) * rows_; }
  DeviceMemory* memory() const { return device_; }  // null: host memory

  TensorView view() const& { return {memory_.get(), dtype_, rows_, cols_, BytesOf(dtype_, cols_), device_}; }
  MutableTensorView mutable_view() & {
    return {memory_.get(), dtype_, rows_, cols_, BytesOf(dtype_, cols_), device_};
  }
  TensorView view() const&& = delete;
  MutableTensorView mutable_view() && = delete;

  // Changes the shape to [rows, cols] of `dtype`, reusing the memory if it is large enough. The contents
  // become undefined. The tensor stays in its memory, host or device.
  void Resize(DType dtype, int64_t rows, int64_t cols);

 private:
  struct Free {
    DeviceMemory* device;  // null: host memory
    void operator()(std::byte* p) const;
  };
  DeviceMemory* device_ = nullptr;
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t capacity_ = 0;  // bytes
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

}  // namespace coppice
