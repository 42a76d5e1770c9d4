// Tensor: a matrix that owns its memory.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/view.h"

namespace coppice {

// A dense row-major matrix [rows, cols], 64-byte aligned, move-only. Taking a view of a temporary does not
// compile. Only Zeros() initialises the memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, int64_t rows, int64_t cols);
  static Tensor Zeros(DType dtype, int64_t rows, int64_t cols);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  Tensor Clone() const;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t bytes() const { return BytesOf(dtype_, cols_) * rows_; }

  TensorView view() const& { return {memory_.get(), dtype_, rows_, cols_}; }
  MutableTensorView mutable_view() & { return {memory_.get(), dtype_, rows_, cols_}; }
  TensorView view() const&& = delete;
  MutableTensorView mutable_view() && = delete;

  // Changes the shape to [rows, cols] of `dtype`, reusing the memory if it is large enough. The contents
  // become undefined.
  void Resize(DType dtype, int64_t rows, int64_t cols);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t capacity_ = 0;  // bytes
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

}  // namespace coppice
