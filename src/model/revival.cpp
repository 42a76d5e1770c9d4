// Parks dropped tokens in the Aux cache. In decode, applies the policy's choice of the attended tokens:
// parked hidden states return to the stream, and keys move between memory and the cold tier.
#include <algorithm>
#include <memory>
#include <utility>

#include "model/record.h"
#include "model/stream.h"
#include "tensor/device_memory.h"

namespace coppice {

// A token that is parked at a later point already has keys in the layers below that point: this layer attends
// it, but it does not return here.
bool Stream::IsParkedAt(int32_t position, Place place) const {
  return sequence_.depth[static_cast<size_t>(position)] == place.depth && sequence_.aux.Has(position) &&
         sequence_.aux.FfnOwed(position) == place.ffn_owed;
}

// After the last layer there is nothing to return to, and process 0 alone decodes.
bool Stream::Parks(Place place, const Pass& pass) const {
  return pass.policy.Facts().parks && place.depth < seen_.layers && process_ == 0;
}

void Stream::ParkRow(int32_t position, const TensorView& hidden, Place place, bool parks, Backend& be) {
  sequence_.depth[static_cast<size_t>(position)] = place.depth;
  if (parks) sequence_.aux.Park(position, place.ffn_owed, hidden, be);
}

void Stream::Park(std::span<const int32_t> dropped, Place place, const Pass& pass) {
  const bool parks = Parks(place, pass);
  if (hidden_.memory() == nullptr) {
    for (const int32_t row : dropped)
      ParkRow(positions_[static_cast<size_t>(row)], hidden().Rows(row, 1), place, parks, pass.backend);
    return;
  }
  std::vector<int32_t> parked;
  for (const int32_t row : dropped) parked.push_back(positions_[static_cast<size_t>(row)]);
  for (const int32_t position : parked) sequence_.depth[static_cast<size_t>(position)] = place.depth;
  if (!parks) return;
  Tensor rows(DType::kF32, std::ssize(dropped), hidden_.cols(), hidden_.memory());
  KeepRows(hidden(), dropped, rows.mutable_view());
  sequence_.aux.Park(parked, place.ffn_owed, rows.view(), pass.backend);
}

void Stream::ChooseAttended(Place place, const Pass& pass) {
  std::vector<int32_t> candidates;
  std::vector<uint8_t> parked;
  size_t row = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(sequence_.depth.size()); ++p) {
    const bool runs = row < positions_.size() && positions_[row] == p;
    if (runs) ++row;
    const bool has_keys_above = sequence_.depth[static_cast<size_t>(p)] > place.depth;
    if (!has_keys_above && !IsParkedAt(p, place) && !runs) continue;
    candidates.push_back(p);
    parked.push_back(!has_keys_above && p != positions_.back());
  }
  const TokenSet chosen = pass.policy.Attend(seen_, {candidates, parked}, pass.backend);

  const auto is_parked = [&](int32_t p) { return IsParkedAt(p, place); };
  std::vector<int32_t> before;  // for the trace
  if (sequence_.trace != nullptr) before = attends_all_ ? candidates : attended_;
  std::erase_if(before, is_parked);
  attends_all_ = false;
  attended_.clear();
  for (const int32_t i : chosen.ToRows()) attended_.push_back(candidates[static_cast<size_t>(i)]);
  COPPICE_CHECK(!attended_.empty() && attended_.back() == positions_.back());

  RecordRemoved(sequence_, std::min(place.depth, seen_.layers - 1), TraceEventKind::kDropped, before,
                attended_);

  std::vector<int32_t> returning;
  std::copy_if(attended_.begin(), attended_.end(), std::back_inserter(returning), is_parked);
  std::vector<int32_t> staying;
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (std::binary_search(attended_.begin(), attended_.end(), positions_[i]))
      staying.push_back(static_cast<int32_t>(i));
  }
  Keep(TokenSet::Of(std::move(staying), rows()), place, pass);
  if (!returning.empty()) TakeBack(returning, pass.backend);
  if (pass.policy.Facts().offload_block > 0) BeginSwap(pass);
}

// The rows of the stream and the returning tokens, merged by position.
void Stream::TakeBack(const std::vector<int32_t>& returning, Backend& be) {
  std::vector<int32_t> merged;
  std::merge(positions_.begin(), positions_.end(), returning.begin(), returning.end(),
             std::back_inserter(merged));
  Tensor states(DType::kF32, std::ssize(returning), hidden_.cols(), hidden_.memory());
  sequence_.aux.Take(returning, states.mutable_view(), be);
  Tensor hidden(DType::kF32, std::ssize(merged), hidden_.cols(), hidden_.memory());
  int64_t old = 0;
  int64_t state = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    const MutableTensorView row = hidden.mutable_view().Rows(static_cast<int64_t>(i), 1);
    if (old < rows() && positions_[static_cast<size_t>(old)] == merged[i]) {
      CopyRows(hidden_.view().Rows(old++, 1), row);
    } else {
      CopyRows(states.view().Rows(state++, 1), row);
    }
  }
  sequence_.ledger.revived += static_cast<int64_t>(returning.size());
  hidden_ = std::move(hidden);
  positions_ = std::move(merged);
}

namespace {

// The prompt's blocks, ascending, that contain any of `positions` and for which `wanted` is true.
template <typename Predicate>
std::vector<int32_t> BlocksOf(std::span<const int32_t> positions, int64_t prompt_tokens, int block,
                              Predicate&& wanted) {
  std::vector<int32_t> blocks;
  for (const int32_t p : positions) {
    if (p >= prompt_tokens) break;
    const int32_t b = p / block;
    if ((blocks.empty() || blocks.back() != b) && wanted(b)) blocks.push_back(b);
  }
  return blocks;
}

// Begins to write the blocks of layer l that are not attended, and to read those that are attended but cold.
// Returns whether anything moves.
bool BeginSwapOfLayer(SequenceState& sequence, int l, int block, std::span<const int32_t> attended) {
  LayerCache& hot = sequence.layer(l).cache;
  const std::vector<int32_t> unattended =
      BlocksOf(hot.positions(), sequence.prompt_tokens, block,
               [&](int32_t b) { return !std::binary_search(attended.begin(), attended.end(), b); });
  if (!unattended.empty()) {
    RecordBlocks(sequence, l, TraceEventKind::kOffloaded, hot.positions(), block, unattended);
    if (!sequence.cold) {
      int64_t record = 0;  // of the widest layer
      for (const LayerState& layer : sequence.layers)
        record = std::max(record, block * 2 * BytesOf(layer.cache.dtype(), layer.cache.width()));
      sequence.cold =
          std::make_unique<ColdCache>(OpenColdTier(sequence.cold_options, record, hot.keys().memory),
                                      static_cast<int>(sequence.layers.size()), block);
    }
    sequence.cold->Offload(l, unattended, hot);
  }
  if (!sequence.cold) return false;
  std::vector<int32_t> fetched;
  for (const int32_t b : attended) {
    if (sequence.cold->IsCold(l, b)) fetched.push_back(b);
  }
  if (!fetched.empty()) {
    RecordBlocks(sequence, l, TraceEventKind::kLoaded, sequence.cold->ColdPositions(l), block, fetched);
    sequence.cold->Prefetch(l, fetched);
  }
  return !unattended.empty() || !fetched.empty();
}

}  // namespace

// Starts the transfers of all layers up to the policy's next choice. They run while the FFN and the next
// layers compute; each layer waits for its own transfers before it attends (LoadColdKeys).
void Stream::BeginSwap(const Pass& pass) {
  const int block = pass.policy.Facts().offload_block;
  attended_blocks_ = BlocksOf(attended_, sequence_.prompt_tokens, block, [](int32_t) { return true; });
  bool moves = false;
  for (int l = seen_.layer + 1; l < seen_.layers; ++l) {
    moves |= BeginSwapOfLayer(sequence_, l, block, attended_blocks_);
    if (pass.policy.AttendsAt(l) != DecodePoint::kNone) break;
  }
  if (moves) ++sequence_.ledger.swaps;
}

void Stream::LoadColdKeys() {
  if (!sequence_.cold || attends_all_) return;
  sequence_.cold->Load(seen_.layer, attended_blocks_, sequence_.layer(seen_.layer).cache);
}

}  // namespace coppice
