#include "model/close_gap.h"

#include <utility>

#include "formats/quants.h"
#include "model/rope.h"
#include "tensor/device_memory.h"

namespace coppice {

namespace {

int64_t RowsBeforeLastGap(const LayerCache& cache) {
  const std::span<const int32_t> positions = cache.positions();
  for (size_t i = positions.size(); i-- > 1;) {
    if (positions[i] != positions[i - 1] + 1) return static_cast<int64_t>(i);
  }
  return 0;
}

// Copies the keys of rows that are before a gap for the first time. These rows have not moved yet, so their
// keys are as first written.
void Remember(const LayerCache& cache, int64_t rows, SinkKeys& sinks) {
  const auto known = static_cast<int64_t>(sinks.positions.size());
  COPPICE_CHECK(known <= rows);
  if (known == rows) return;
  Tensor keys(cache.dtype(), rows, cache.width());  // few, and in host memory
  CopyRows(sinks.keys.view().Rows(0, known), keys.mutable_view().Rows(0, known));
  CopyRows(cache.keys().Rows(known, rows - known), keys.mutable_view().Rows(known, rows - known));
  sinks.keys = std::move(keys);
  const std::span<const int32_t> positions = cache.positions();
  sinks.positions.insert(sinks.positions.end(), positions.begin() + known, positions.begin() + rows);
}

}  // namespace

void CloseGap(LayerCache& cache, SinkKeys& sinks, int head_dim, const RopeTable& rope, Backend& be) {
  const int64_t rows = RowsBeforeLastGap(cache);
  if (rows == 0) return;
  Remember(cache, rows, sinks);

  std::vector<int32_t> offsets(static_cast<size_t>(rows));
  const int32_t behind = cache.positions()[static_cast<size_t>(rows)];
  Tensor keys(DType::kF32, rows, cache.width());
  for (int64_t i = rows - 1; i >= 0; --i) {  // backwards: positions must ascend at every moment
    const auto position = static_cast<int32_t>(behind - rows + i);
    offsets[static_cast<size_t>(i)] = position - sinks.positions[static_cast<size_t>(i)];
    cache.SetPosition(i, position);
    DequantizeRow(cache.dtype(), sinks.keys.view().RowBytes(i), keys.mutable_view().Row<float>(i));
  }
  if (rope.cos.empty()) return;  // with ALiBi, keys do not depend on positions
  RotateFurther(keys.mutable_view(), head_dim, offsets, rope, be);
  be.Convert(keys.view(), cache.mutable_keys().Rows(0, rows));
}

}  // namespace coppice
