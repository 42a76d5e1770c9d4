#include "train/content_hash.h"

#include <fmt/core.h>

namespace coppice {

std::string ContentHash::Text() const { return fmt::format("{:016x}", value()); }

std::string HashOfModel(const TensorStore& store) {
  ContentHash hash;
  for (const StoredTensor& tensor : store.tensors()) {
    hash.Add(tensor.name);
    hash.Add(Info(tensor.view.dtype).name);
    for (const int64_t n : tensor.shape) hash.Add(static_cast<uint64_t>(n));
    const auto bytes = static_cast<size_t>(BytesOf(tensor.view.dtype, tensor.view.cols));
    for (int64_t row = 0; row < tensor.view.rows; ++row)
      hash.Add(std::span(tensor.view.RowBytes(row), bytes));
  }
  return hash.Text();
}

}  // namespace coppice
