#include "kernels/gpu/operands.h"

#include <algorithm>

#include "base/check.h"

namespace coppice::gpu {

namespace {

int64_t StrideOf(DType type, int64_t bytes) {
  const DTypeInfo& info = Info(type);
  if (info.block_elements > 1) return bytes;
  COPPICE_CHECK(bytes % info.block_bytes == 0);
  return bytes / info.block_bytes;
}

}  // namespace

Operands::Place Operands::In(const TensorView& x) {
  if (x.empty()) return {};
  if (x.memory != nullptr) {
    COPPICE_CHECK(x.memory == &gpu_.heap());
    return {AddressOf(x.data), StrideOf(x.dtype, x.stride)};
  }
  const int64_t row = BytesOf(x.dtype, x.cols);
  const CUdeviceptr address = Scratch(x.rows * row);
  gpu_.device().Upload(x.data, x.stride, address, row, {x.rows, row});
  return {address, StrideOf(x.dtype, row)};
}

Operands::Place Operands::Out(const MutableTensorView& y) {
  if (TensorView(y).empty()) return {};
  if (y.memory != nullptr) return In(y);
  const int64_t row = BytesOf(y.dtype, y.cols);
  const CUdeviceptr address = Scratch(y.rows * row);
  outputs_.push_back({y, address});
  return {address, StrideOf(y.dtype, row)};
}

Operands::Place Operands::InOut(const MutableTensorView& y) {
  const Place place = Out(y);
  if (TensorView(y).empty() || y.memory != nullptr) return place;
  const int64_t row = BytesOf(y.dtype, y.cols);
  gpu_.device().Upload(y.data, y.stride, place.address, row, {y.rows, row});
  return place;
}

CUdeviceptr Operands::List(std::span<const std::byte> list) {
  if (list.empty()) return 0;
  const auto bytes = std::ssize(list);
  const CUdeviceptr address = Scratch(bytes);
  gpu_.device().Upload(list.data(), bytes, address, bytes, {1, bytes});
  return address;
}

void Operands::Finish() {
  for (const Output& output : outputs_) {
    const int64_t row = BytesOf(output.host.dtype, output.host.cols);
    gpu_.device().Download(output.address, row, output.host.data, output.host.stride,
                           {output.host.rows, row});
  }
  outputs_.clear();
}

}  // namespace coppice::gpu
