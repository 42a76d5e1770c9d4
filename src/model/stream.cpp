#include "model/stream.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "model/swap.h"

namespace coppice {

Stream::Stream(Phase phase, int layers, SequenceState& sequence, Tensor hidden,
               std::vector<int32_t> positions)
    : sequence_(sequence), hidden_(std::move(hidden)), positions_(std::move(positions)) {
  COPPICE_CHECK(hidden_.rows() == rows());
  if (phase == Phase::kPrefill && sequence.prefix.rows > 0) {
    in_front_ = sequence.prefix.rows;
    COPPICE_CHECK(!positions_.empty() && positions_.front() == in_front_);
    all_positions_.resize(static_cast<size_t>(in_front_));
    std::iota(all_positions_.begin(), all_positions_.end(), 0);
    all_positions_.insert(all_positions_.end(), positions_.begin(), positions_.end());
  }
  seen_.phase = phase;
  seen_.layers = layers;
  seen_.prompt_tokens = sequence.prompt_tokens;
  Show();
}

void Stream::Enter(int layer) {
  seen_.layer = layer;
  Reach({layer, false});
}

void Stream::Reach(LayerPoint point) {
  if (!prefill()) return;
  if (in_front_ > 0 && sequence_.prefix.state->point == point) Join();
  if (sequence_.capture == nullptr) return;
  const LayerCache& cache = sequence_.cache[static_cast<size_t>(point.layer)];
  sequence_.capture->Reach(point, in_front_ > 0 ? TensorView() : TensorView(hidden()), cache);
}

void Stream::Join() {
  const TensorView front = sequence_.prefix.state->hidden.view().Rows(0, in_front_);
  Tensor all(DType::kF32, in_front_ + rows(), hidden_.cols());
  const auto row_bytes = static_cast<size_t>(BytesOf(DType::kF32, hidden_.cols()));
  std::memcpy(all.mutable_view().data, front.data, row_bytes * static_cast<size_t>(in_front_));
  std::memcpy(all.mutable_view().RowBytes(in_front_), hidden_.view().data,
              row_bytes * static_cast<size_t>(rows()));
  hidden_ = std::move(all);
  positions_ = std::exchange(all_positions_, {});
  in_front_ = 0;
  sequence_.prefix.state.reset();  // a cache may want the memory
  Show();
}

// In decode the policy sees what was attended, which the layer shows it (Layer::Attention).
void Stream::Show() {
  if (!prefill()) return;
  const bool whole = in_front_ == 0;
  seen_.positions = whole ? positions_ : all_positions_;
  seen_.hidden = whole ? TensorView(hidden()) : TensorView();
}

void Stream::Choose(DecodePoint point, TokenPolicy& policy, Backend& be) {
  const bool before = point == DecodePoint::kBeforeLayer;
  const Place place = before ? Place{seen_.layer, false} : Place{seen_.layer + 1, true};
  if (!prefill()) {
    if (policy.AttendsAt(seen_.layer) == point) Attend(place, policy, be);
    return;
  }
  const TokenSet kept = before ? policy.BeforeLayer(seen_, be) : policy.AfterAttention(seen_, be);
  if (in_front_ > 0) {
    COPPICE_CHECK(kept.IsAll());  // TokenPolicy::FirstChoice said so
    return;
  }
  // After the last layer there is nothing to come back to.
  Keep(kept, place, policy.Parks() && place.depth < seen_.layers, be);
}

void Stream::Keep(const TokenSet& kept, Place place, bool parks, Backend& be) {
  COPPICE_CHECK(kept.universe() == rows() && kept.size() > 0);
  if (kept.IsAll()) return;
  size_t next = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    if (next < kept.rows().size() && kept.rows()[next] == row) {
      ++next;
      continue;
    }
    const int32_t position = positions_[static_cast<size_t>(row)];
    sequence_.depth[static_cast<size_t>(position)] = place.depth;
    if (parks) sequence_.aux.Park(position, place.ffn_owed, hidden().Rows(row, 1), be);
  }
  Compact(kept, kept, be);
}

void Stream::KeepLastOnly(Backend& be) {
  in_front_ = 0;  // whoever waits there goes the way of the others
  Compact(TokenSet::None(rows()).UnionLast(1), TokenSet::None(seen_.rows()).UnionLast(1), be);
}

void Stream::Compact(const TokenSet& kept, const TokenSet& kept_seen, Backend& be) {
  if (!kept.IsAll()) {
    const MutableTensorView all = hidden();
    be.GatherRows(all, kept.rows(), all.Rows(0, kept.size()));
    for (size_t i = 0; i < kept.rows().size(); ++i)
      positions_[i] = positions_[static_cast<size_t>(kept.rows()[i])];
    positions_.resize(kept.rows().size());
  }
  if (prefill()) seen_.KeepRows(kept_seen, be);
  Show();
}

void Stream::Attend(Place place, TokenPolicy& policy, Backend& be) {
  std::vector<int32_t> candidates;
  std::vector<uint8_t> parked;
  // Parked further up does not count: those have keys in the layers up to there.
  const auto waits_here = [&](int32_t p) {
    return sequence_.depth[static_cast<size_t>(p)] == place.depth && sequence_.aux.Has(p) &&
           sequence_.aux.FfnOwed(p) == place.ffn_owed;
  };
  size_t running = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(sequence_.depth.size()); ++p) {
    const bool runs = running < positions_.size() && positions_[running] == p;
    if (runs) ++running;
    const int32_t depth = sequence_.depth[static_cast<size_t>(p)];
    if (depth <= place.depth && !waits_here(p) && !runs) continue;
    candidates.push_back(p);
    parked.push_back(depth <= place.depth && p != positions_.back());
  }
  const TokenSet chosen = policy.Attend(seen_, {candidates, parked}, be);

  std::vector<int32_t> back;
  std::vector<int32_t> before;  // for the trace alone
  if (sequence_.trace != nullptr) before = attends_all_ ? candidates : std::move(attended_);
  attended_.clear();
  for (const int32_t row : chosen.ToRows()) {
    const int32_t p = candidates[static_cast<size_t>(row)];
    attended_.push_back(p);
    if (waits_here(p)) back.push_back(p);
  }
  attends_all_ = false;
  if (sequence_.trace != nullptr) {
    std::vector<int32_t> dropped;
    std::set_difference(before.begin(), before.end(), attended_.begin(), attended_.end(),
                        std::back_inserter(dropped));
    std::erase_if(dropped, waits_here);
    sequence_.trace->Event(std::min(place.depth, seen_.layers - 1), TraceEventKind::kDropped, dropped);
  }
  std::vector<int32_t> staying;
  for (size_t row = 0; row < positions_.size(); ++row) {
    if (std::binary_search(attended_.begin(), attended_.end(), positions_[row]))
      staying.push_back(static_cast<int32_t>(row));
  }
  COPPICE_CHECK(!attended_.empty() && attended_.back() == positions_.back());
  Keep(TokenSet::Of(std::move(staying), rows()), place, policy.Parks() && place.depth < seen_.layers, be);
  if (!back.empty()) TakeBack(back);
  if (policy.OffloadBlock() > 0) BeginSwap(policy, be);
}

// Rows that are there and rows that come back, merged by position.
void Stream::TakeBack(const std::vector<int32_t>& back) {
  std::vector<int32_t> merged;
  std::merge(positions_.begin(), positions_.end(), back.begin(), back.end(), std::back_inserter(merged));
  Tensor hidden(DType::kF32, static_cast<int64_t>(merged.size()), hidden_.cols());
  const auto bytes = static_cast<size_t>(BytesOf(DType::kF32, hidden_.cols()));
  size_t old = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    const MutableTensorView row = hidden.mutable_view().Rows(static_cast<int64_t>(i), 1);
    if (old < positions_.size() && positions_[old] == merged[i]) {
      std::memcpy(row.data, hidden_.view().RowBytes(static_cast<int64_t>(old++)), bytes);
    } else {
      sequence_.aux.Take(merged[i], row);
    }
  }
  sequence_.ledger.revived += static_cast<int64_t>(back.size());
  hidden_ = std::move(hidden);
  positions_ = std::move(merged);
}

void Stream::BeginSwap(TokenPolicy& policy, Backend& be) {
  const int block = policy.OffloadBlock();
  attended_blocks_.clear();
  for (const int32_t p : attended_) {
    if (p >= sequence_.prompt_tokens) break;
    if (attended_blocks_.empty() || attended_blocks_.back() != p / block)
      attended_blocks_.push_back(p / block);
  }
  int last = seen_.layer + 1;
  while (last + 1 < seen_.layers && policy.AttendsAt(last) == DecodePoint::kNone) ++last;
  BeginSwapOfSegment(sequence_, {seen_.layer + 1, last}, block, attended_blocks_, be.cache_dtype());
}

void Stream::ReachDepth(int layers) {
  if (prefill()) return;  // what leaves is told where it leaves; who stays to the end was entered with all
  for (size_t row = 0; row + 1 < positions_.size(); ++row) {
    sequence_.depth[static_cast<size_t>(positions_[row])] = layers;
  }
}

std::vector<int32_t> Stream::MaskPositions(ReviveMask mask) const {
  if (prefill() || rows() == 1 || mask == ReviveMask::kCausal) return positions_;
  std::vector<int32_t> behind(positions_.size());
  for (size_t row = 0; row < behind.size(); ++row)
    behind[row] = positions_.back() + static_cast<int32_t>(row);
  return behind;
}

}  // namespace coppice
