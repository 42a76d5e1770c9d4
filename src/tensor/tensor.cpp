#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "tensor/device_memory.h"

namespace coppice {

void Tensor::Free::operator()(std::byte* p) const {
  if (device != nullptr) {
    device->Free(p);
  } else {
    std::free(p);
  }
}

Tensor::Tensor(DType dtype, int64_t rows, int64_t cols, DeviceMemory* memory) : device_(memory) {
  Resize(dtype, rows, cols);
}

Tensor Tensor::Zeros(DType dtype, int64_t rows, int64_t cols, DeviceMemory* memory) {
  Tensor t(dtype, rows, cols, memory);
  ZeroRows(t.mutable_view());
  return t;
}

Tensor Tensor::Clone() const {
  Tensor copy(dtype_, rows_, cols_, device_);
  CopyRows(view(), copy.mutable_view());
  return copy;
}

void Tensor::Resize(DType dtype, int64_t rows, int64_t cols) {
  COPPICE_CHECK(rows >= 0 && cols >= 0 && cols % Info(dtype).block_elements == 0);
  dtype_ = dtype;
  rows_ = rows;
  cols_ = cols;
  if (bytes() <= capacity_) return;
  memory_.reset();  // freed before the new allocation, so that the two never coexist
  capacity_ = 0;
  const int64_t capacity = (bytes() + 63) / 64 * 64;
  if (device_ != nullptr) {
    memory_ = std::unique_ptr<std::byte[], Free>(device_->Allocate(capacity), Free{device_});
    capacity_ = capacity;
    return;
  }
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(capacity))));
  if (!memory_) throw std::bad_alloc();
  capacity_ = capacity;
}

}  // namespace coppice
