#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace coppice {

void Tensor::Free::operator()(std::byte* p) const { std::free(p); }

Tensor::Tensor(DType dtype, int64_t rows, int64_t cols) { Resize(dtype, rows, cols); }

Tensor Tensor::Zeros(DType dtype, int64_t rows, int64_t cols) {
  Tensor t(dtype, rows, cols);
  if (t.bytes() > 0) std::memset(t.memory_.get(), 0, static_cast<size_t>(t.bytes()));
  return t;
}

Tensor Tensor::Clone() const {
  Tensor copy(dtype_, rows_, cols_);
  if (bytes() > 0) std::memcpy(copy.memory_.get(), memory_.get(), static_cast<size_t>(bytes()));
  return copy;
}

void Tensor::Resize(DType dtype, int64_t rows, int64_t cols) {
  COPPICE_CHECK(rows >= 0 && cols >= 0 && cols % Info(dtype).block_elements == 0);
  dtype_ = dtype;
  rows_ = rows;
  cols_ = cols;
  if (bytes() <= capacity_) return;
  memory_.reset();  // freed before the new allocation, so that the two never coexist
  capacity_ = (bytes() + 63) / 64 * 64;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(capacity_))));
  if (!memory_) {
    capacity_ = 0;
    throw std::bad_alloc();
  }
}

}  // namespace coppice
