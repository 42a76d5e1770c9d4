#include "kv/aux_cache.h"

#include <utility>

#include "formats/quants.h"

namespace coppice {

void AuxCache::Park(int32_t position, bool ffn_owed, const TensorView& hidden, Backend& be) {
  COPPICE_CHECK(position >= 0 && !Has(position));
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == 1 && hidden.cols == width_);
  const size_t index = static_cast<size_t>(position);
  if (index >= slots_.size()) {
    slots_.resize(index + 1, -1);
    owed_.resize(index + 1);
  }
  if (free_.empty()) {
    const int32_t first = static_cast<int32_t>(chunks_.size()) * kChunk;
    chunks_.emplace_back(dtype_, kChunk, width_);
    for (int32_t i = kChunk - 1; i >= 0; --i) free_.push_back(first + i);  // the lowest slot is taken first
  }
  const int32_t slot = free_.back();
  be.Convert(hidden, RowOf(slot));
  free_.pop_back();
  slots_[index] = slot;
  owed_[index] = ffn_owed;
  ++tokens_;
}

void AuxCache::Take(int32_t position, MutableTensorView hidden) {
  COPPICE_CHECK(Has(position));
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == 1 && hidden.cols == width_);
  const int32_t slot = std::exchange(slots_[static_cast<size_t>(position)], -1);
  DequantizeRow(dtype_, RowOf(slot).data, hidden.Row<float>(0));
  free_.push_back(slot);
  --tokens_;
}

MutableTensorView AuxCache::RowOf(int32_t slot) {
  return chunks_[static_cast<size_t>(slot / kChunk)].mutable_view().Rows(slot % kChunk, 1);
}

}  // namespace coppice
