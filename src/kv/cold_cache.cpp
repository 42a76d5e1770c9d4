#include "kv/cold_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/ascends.h"
#include "tensor/device_memory.h"

namespace coppice {

namespace {

// Bytes of one row: a key and a value.
int64_t RowBytes(const LayerCache& hot) { return 2 * BytesOf(hot.dtype(), hot.width()); }

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

// Bytes of records that are written together. A device copies more at once no faster (8 MiB take 0.13 ms at
// 64 GB/s), and the staged records take its memory.
constexpr int64_t kRecordsTogether = int64_t{8} << 20;

// Copies a record of rows.size() rows, in `memory`, into these rows of the hot cache, one run of consecutive
// rows at a time.
void TakeRecord(const std::byte* record, DeviceMemory* memory, std::span<const int32_t> rows,
                LayerCache& hot) {
  const MutableTensorView keys = hot.mutable_keys();
  const MutableTensorView values = hot.mutable_values();
  const std::byte* of_values = record + static_cast<int64_t>(rows.size()) * keys.stride;
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end] == rows[end - 1] + 1; ++end) {
    }
    const int64_t from = static_cast<int64_t>(begin) * keys.stride;
    const auto count = static_cast<int64_t>(end - begin);
    CopyRows({record + from, keys.dtype, count, keys.cols, keys.stride, memory},
             keys.Rows(rows[begin], count));
    CopyRows({of_values + from, keys.dtype, count, keys.cols, keys.stride, memory},
             values.Rows(rows[begin], count));
  }
}

}  // namespace

ColdCache::ColdCache(std::unique_ptr<RecordStore> store, int layers, int block)
    : store_(std::move(store)), block_(block), layers_(static_cast<size_t>(layers)) {
  COPPICE_CHECK(store_ != nullptr && layers > 0 && block > 0);
}

void ColdCache::Offload(int layer, std::span<const int32_t> blocks, LayerCache& hot) {
  COPPICE_CHECK(Ascends(blocks) && !hot.ragged());
  Load(layer, BlocksInBoth(layer, blocks, hot), hot);
  // Allocates all blocks, so that the pointers below stay valid.
  if (!blocks.empty()) At(layer, blocks.back());
  const std::span<const int32_t> positions = hot.positions();
  std::vector<int32_t> kept;
  std::vector<Leaving> gone;
  kept.reserve(positions.size());
  int32_t next = 0;  // the first row not yet examined
  const auto keep_until = [&](int32_t row) {
    for (; next < row; ++next) kept.push_back(next);
  };
  for (const int32_t b : blocks) {
    const auto [first, end] = RowsOfBlock(b, hot);
    if (first == end) continue;
    gone.push_back({&At(layer, b), first, positions.subspan(Size(first), Size(end - first))});
    keep_until(first);
    next = end;
  }
  if (gone.empty()) return;
  Store(gone, hot);
  keep_until(static_cast<int32_t>(hot.rows()));
  const int64_t rows = hot.rows();
  const TokenSet left = TokenSet::Of(std::move(kept), rows);
  hot.Keep(std::span(&left, 1));
  for (const Leaving& leaving : gone) leaving.block->cold = true;
  cold_bytes_ += (rows - hot.rows()) * RowBytes(hot);
}

// Keys and values of a position never change, so equal positions mean an equal record.
void ColdCache::Store(std::span<const Leaving> leaving, const LayerCache& hot) {
  std::vector<Leaving> fresh;
  std::ranges::copy_if(leaving, std::back_inserter(fresh),
                       [](const Leaving& l) { return !std::ranges::equal(l.block->positions, l.positions); });
  const auto most = Size(std::max<int64_t>(1, kRecordsTogether / store_->record_bytes()));
  for (size_t begin = 0; begin < fresh.size(); begin += most)
    StoreTogether(std::span(fresh).subspan(begin, std::min(most, fresh.size() - begin)), hot);
}

void ColdCache::StoreTogether(std::span<const Leaving> leaving, const LayerCache& hot) {
  std::byte* staged = store_->Stage(std::ssize(leaving));
  const int64_t stride = hot.keys().stride;
  std::vector<int64_t> slots;
  for (const auto& [block, first, positions] : leaving) {
    const auto count = std::ssize(positions);
    COPPICE_CHECK(2 * count * stride <= store_->record_bytes());
    CopyRows(hot.keys().Rows(first, count),
             {staged, hot.dtype(), count, hot.width(), stride, store_->memory()});
    CopyRows(hot.values().Rows(first, count),
             {staged + count * stride, hot.dtype(), count, hot.width(), stride, store_->memory()});
    staged += store_->record_bytes();
    if (block->slot < 0) block->slot = slots_++;
    block->positions.clear();  // in case the write fails
    slots.push_back(block->slot);
  }
  store_->Write(slots);
  for (const auto& [block, first, positions] : leaving)
    block->positions.assign(positions.begin(), positions.end());
  written_ += std::ssize(leaving);
}

void ColdCache::Prefetch(int layer, std::span<const int32_t> blocks) {
  std::vector<int64_t> slots;
  for (const int32_t b : blocks) {
    if (IsCold(layer, b)) slots.push_back(At(layer, b).slot);
  }
  if (!slots.empty()) store_->Prefetch(slots);
}

void ColdCache::Load(int layer, std::span<const int32_t> blocks, LayerCache& hot) {
  COPPICE_CHECK(Ascends(blocks));
  std::vector<Block*> loaded;
  std::vector<int64_t> slots;
  std::vector<int32_t> positions;
  for (const int32_t b : blocks) {
    if (!IsCold(layer, b)) continue;
    loaded.push_back(&At(layer, b));
    slots.push_back(loaded.back()->slot);
    positions.insert(positions.end(), loaded.back()->positions.begin(), loaded.back()->positions.end());
  }
  if (loaded.empty()) return;
  // Reads everything before changing the hot cache, because a transfer may fail.
  const std::byte* records = store_->Read(slots);
  const std::vector<int32_t> rows = hot.Insert(positions);
  size_t done = 0;
  for (size_t i = 0; i < loaded.size(); ++i) {
    const size_t count = loaded[i]->positions.size();
    TakeRecord(records + static_cast<int64_t>(i) * store_->record_bytes(), store_->memory(),
               std::span(rows).subspan(done, count), hot);
    loaded[i]->cold = false;
    done += count;
  }
  cold_bytes_ -= static_cast<int64_t>(rows.size()) * RowBytes(hot);
  loaded_ += static_cast<int64_t>(loaded.size());
}

bool ColdCache::IsCold(int layer, int32_t block) const {
  const std::vector<Block>& blocks = layers_[static_cast<size_t>(layer)];
  return block >= 0 && static_cast<size_t>(block) < blocks.size() && blocks[static_cast<size_t>(block)].cold;
}

std::vector<int32_t> ColdCache::ColdPositions(int layer) const {
  std::vector<int32_t> positions;
  for (const Block& block : layers_[static_cast<size_t>(layer)]) {
    if (block.cold) positions.insert(positions.end(), block.positions.begin(), block.positions.end());
  }
  return positions;
}

ColdCache::Block& ColdCache::At(int layer, int32_t block) {
  COPPICE_CHECK(block >= 0);
  std::vector<Block>& blocks = layers_[static_cast<size_t>(layer)];
  if (static_cast<size_t>(block) >= blocks.size()) blocks.resize(static_cast<size_t>(block) + 1);
  return blocks[static_cast<size_t>(block)];
}

std::pair<int32_t, int32_t> ColdCache::RowsOfBlock(int32_t block, const LayerCache& hot) const {
  const std::span<const int32_t> positions = hot.positions();
  const auto row = [&](int64_t position) {
    return static_cast<int32_t>(std::ranges::lower_bound(positions, position) - positions.begin());
  };
  return {row(int64_t{block} * block_), row((int64_t{block} + 1) * block_)};
}

std::vector<int32_t> ColdCache::BlocksInBoth(int layer, std::span<const int32_t> blocks,
                                             const LayerCache& hot) const {
  std::vector<int32_t> both;
  for (const int32_t b : blocks) {
    if (!IsCold(layer, b)) continue;
    const auto [first, end] = RowsOfBlock(b, hot);
    if (first < end) both.push_back(b);
  }
  return both;
}

}  // namespace coppice
