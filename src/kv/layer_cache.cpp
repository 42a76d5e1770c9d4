#include "kv/layer_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace coppice {

namespace {

Tensor Grown(const Tensor& old, DType dtype, int64_t capacity, int64_t width, int64_t rows) {
  Tensor grown(dtype, capacity, width);
  if (rows > 0) {
    std::memcpy(grown.mutable_view().data, old.view().data,
                static_cast<size_t>(rows * BytesOf(dtype, width)));
  }
  return grown;
}

}  // namespace

void LayerCache::Reserve(int64_t rows) {
  if (rows <= keys_.rows()) return;
  keys_ = Grown(keys_, dtype_, rows, width_, this->rows());
  values_ = Grown(values_, dtype_, rows, width_, this->rows());
}

LayerCache::Fresh LayerCache::Append(std::span<const int32_t> positions) {
  const int64_t before = rows();
  const int64_t count = static_cast<int64_t>(positions.size());
  COPPICE_CHECK(count > 0 && (before == 0 || positions.front() > positions_.back()));
  if (before + count > keys_.rows()) Reserve(std::max(before + count, keys_.rows() + keys_.rows() / 2));
  positions_.insert(positions_.end(), positions.begin(), positions.end());
  return {keys_.mutable_view().Rows(before, count), values_.mutable_view().Rows(before, count)};
}

}  // namespace coppice
