#include "kv/aux_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "formats/quants.h"

namespace coppice {

namespace {

// Bytes of states that go to a store together. A device copies more at once no faster, and the staged states
// take its memory.
constexpr int64_t kStatesTogether = int64_t{8} << 20;

}  // namespace

void AuxCache::Park(std::span<const int32_t> positions, bool ffn_owed, const TensorView& hidden,
                    Backend& be) {
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == std::ssize(positions) && hidden.cols == width_);
  COPPICE_CHECK(hidden.memory == memory_);
  if (memory_ == nullptr) {
    for (int64_t i = 0; i < hidden.rows; ++i)
      be.Convert(hidden.Rows(i, 1), RowOf(NewSlot(positions[static_cast<size_t>(i)], ffn_owed)));
    return;
  }
  const int64_t row_bytes = BytesOf(dtype_, width_);
  if (store_ == nullptr) store_ = memory_->OpenRecordStore(row_bytes);
  COPPICE_CHECK(store_ != nullptr);
  const int64_t most = std::max<int64_t>(1, kStatesTogether / row_bytes);
  for (int64_t begin = 0; begin < hidden.rows; begin += most) {
    const int64_t count = std::min(most, hidden.rows - begin);
    be.Convert(hidden.Rows(begin, count), {store_->Stage(count), dtype_, count, width_, row_bytes, memory_});
    std::vector<int64_t> slots;
    for (int64_t i = begin; i < begin + count; ++i)
      slots.push_back(NewSlot(positions[static_cast<size_t>(i)], ffn_owed));
    store_->Write(slots);
  }
}

int32_t AuxCache::NewSlot(int32_t position, bool ffn_owed) {
  COPPICE_CHECK(position >= 0 && !Has(position));
  const size_t index = static_cast<size_t>(position);
  if (index >= slots_.size()) {
    slots_.resize(index + 1, -1);
    owed_.resize(index + 1);
  }
  if (free_.empty()) {
    if (memory_ == nullptr) chunks_.emplace_back(dtype_, kChunk, width_);
    for (int32_t i = kChunk - 1; i >= 0; --i)
      free_.push_back(slots_made_ + i);  // the lowest slot is taken first
    slots_made_ += kChunk;
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  slots_[index] = slot;
  owed_[index] = ffn_owed;
  ++tokens_;
  return slot;
}

int32_t AuxCache::FreeSlot(int32_t position) {
  COPPICE_CHECK(Has(position));
  const int32_t slot = std::exchange(slots_[static_cast<size_t>(position)], -1);
  free_.push_back(slot);
  --tokens_;
  return slot;
}

void AuxCache::Take(std::span<const int32_t> positions, MutableTensorView hidden, Backend& be) {
  COPPICE_CHECK(hidden.dtype == DType::kF32 && hidden.rows == std::ssize(positions) && hidden.cols == width_);
  COPPICE_CHECK(hidden.memory == memory_);
  std::vector<int64_t> slots;
  for (const int32_t position : positions) slots.push_back(FreeSlot(position));
  if (slots.empty()) return;
  if (memory_ == nullptr) {
    for (int64_t i = 0; i < hidden.rows; ++i)
      DequantizeRow(dtype_, RowOf(static_cast<int32_t>(slots[static_cast<size_t>(i)])).data,
                    hidden.Row<float>(i));
    return;
  }
  const TensorView states(store_->Read(slots), dtype_, hidden.rows, width_, store_->record_bytes(), memory_);
  std::vector<int32_t> rows(slots.size());
  std::iota(rows.begin(), rows.end(), 0);
  be.Embed(states, rows, 1, hidden);  // to fp32, as the rows of a table
}

MutableTensorView AuxCache::RowOf(int32_t slot) {
  return chunks_[static_cast<size_t>(slot / kChunk)].mutable_view().Rows(slot % kChunk, 1);
}

}  // namespace coppice
