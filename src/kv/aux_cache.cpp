#include "kv/aux_cache.h"

#include <utility>

#include "formats/quants.h"
#include "tensor/device_memory.h"

namespace coppice {

void AuxCache::Park(std::span<const int32_t> positions, bool ffn_owed, const TensorView& hidden,
                    Backend& be) {
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == std::ssize(positions) && hidden.cols == width_);
  if (positions.empty()) return;
  if (hidden.memory == nullptr) {
    for (int64_t i = 0; i < hidden.rows; ++i)
      be.Convert(hidden.Rows(i, 1), RowOf(NewSlot(positions[static_cast<size_t>(i)], ffn_owed)));
    return;
  }
  Tensor parked(dtype_, hidden.rows, width_, hidden.memory);
  be.Convert(hidden, parked.mutable_view());
  const HostRows rows(parked.view());  // one copy for all of them
  for (int64_t i = 0; i < hidden.rows; ++i)
    CopyRows(rows.view().Rows(i, 1), RowOf(NewSlot(positions[static_cast<size_t>(i)], ffn_owed)));
}

int32_t AuxCache::NewSlot(int32_t position, bool ffn_owed) {
  COPPICE_CHECK(position >= 0 && !Has(position));
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
  free_.pop_back();
  slots_[index] = slot;
  owed_[index] = ffn_owed;
  ++tokens_;
  return slot;
}

void AuxCache::Take(int32_t position, MutableTensorView hidden) {
  COPPICE_CHECK(Has(position));
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == 1 && hidden.cols == width_);
  const int32_t slot = std::exchange(slots_[static_cast<size_t>(position)], -1);
  if (hidden.memory == nullptr) {
    DequantizeRow(dtype_, RowOf(slot).data, hidden.Row<float>(0));
  } else {
    Tensor row(DType::kF32, 1, width_);
    DequantizeRow(dtype_, RowOf(slot).data, row.mutable_view().Row<float>(0));
    CopyRows(row.view(), hidden);
  }
  free_.push_back(slot);
  --tokens_;
}

MutableTensorView AuxCache::RowOf(int32_t slot) {
  return chunks_[static_cast<size_t>(slot / kChunk)].mutable_view().Rows(slot % kChunk, 1);
}

}  // namespace coppice
