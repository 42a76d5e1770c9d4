// The rows of a prefill: a reused prefix joins them, and the policy chooses which of them stay. For decode,
// revival.cpp applies the policy's choices.
#include "model/stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace coppice {

Stream::Stream(Phase phase, SequenceState& sequence, Tensor hidden, std::vector<int32_t> positions,
               bool last_row_only)
    : sequence_(sequence),
      last_row_only_(last_row_only),
      hidden_(std::move(hidden)),
      positions_(std::move(positions)) {
  COPPICE_CHECK(hidden_.rows() == rows());
  deal_ = Deal(rows(), 1, std::max<int64_t>(rows(), 1));
  if (phase == Phase::kPrefill && sequence.prefix.rows > 0) {
    in_front_ = sequence.prefix.rows;
    COPPICE_CHECK(!positions_.empty() && positions_.front() >= in_front_);
    all_positions_.resize(static_cast<size_t>(in_front_));
    std::iota(all_positions_.begin(), all_positions_.end(), 0);
    all_positions_.insert(all_positions_.end(), positions_.begin(), positions_.end());
  }
  seen_.phase = phase;
  seen_.layers = static_cast<int>(sequence.layers.size());
  seen_.prompt_tokens = sequence.prompt_tokens;
  if (sequence.entered < sequence.prompt_tokens) seen_.entered = sequence.input;
  Show();
}

std::vector<int32_t> Stream::Tokens() const {
  std::vector<int32_t> tokens;
  for (const int32_t p : positions_) tokens.push_back(sequence_.tokens[static_cast<size_t>(p)]);
  return tokens;
}

int64_t Stream::RowOf(int64_t position) const {
  return std::ranges::lower_bound(positions_, position) - positions_.begin();
}

void Stream::Enter(int layer) {
  seen_.layer = layer;
  Reach({layer, false});
}

void Stream::Reach(LayerPoint point) {
  if (!prefill()) return;
  if (in_front_ > 0 && sequence_.prefix.state->point == point) Join();
  if (sequence_.capture == nullptr) return;
  sequence_.capture->Reach(point, in_front_ > 0 ? TensorView() : TensorView(hidden()),
                           sequence_.layer(point.layer));
}

void Stream::Join() {
  const TensorView front = sequence_.prefix.state->hidden.view().Rows(0, in_front_);
  Tensor all(DType::kF32, in_front_ + rows(), hidden_.cols(), hidden_.memory());
  CopyRows(front, all.mutable_view().Rows(0, in_front_));
  CopyRows(hidden(), all.mutable_view().Rows(in_front_, rows()));
  hidden_ = std::move(all);
  positions_ = std::exchange(all_positions_, {});
  in_front_ = 0;
  sequence_.prefix.state.reset();  // the document cache may then free the memory
  Show();
}

// In decode the policy sees the attended positions, which Layer::Attention sets.
void Stream::Show() {
  if (!prefill()) return;
  const bool whole = in_front_ == 0;
  seen_.positions = whole ? positions_ : all_positions_;
  seen_.hidden = whole && deal_.processes() == 1 ? TensorView(hidden()) : TensorView();
}

void Stream::Choose(DecodePoint point, const Pass& pass) {
  const bool before = point == DecodePoint::kBeforeLayer;
  const Place place = before ? Place{seen_.layer, false} : Place{seen_.layer + 1, true};
  if (!prefill()) {
    if (pass.policy.AttendsAt(seen_.layer) == point) ChooseAttended(place, pass);
    return;
  }
  if (before && pass.split != nullptr) ShowAllHidden(pass);
  const TokenSet kept =
      before ? pass.policy.BeforeLayer(seen_, pass.backend) : pass.policy.AfterAttention(seen_, pass.backend);
  if (pass.split != nullptr) {
    seen_.hidden = {};  // from here on the other processes' rows change, and this one has the old ones
    pass.split->Agree(kept, before ? "before" : "after attention", seen_.layer);
  }
  Keep(kept, place, pass);
}

TokenSet Stream::BehindFront(const TokenSet& seen) const {
  COPPICE_CHECK(seen.universe() == in_front_ + rows());
  if (in_front_ == 0) return seen;
  if (seen.IsAll()) return TokenSet::All(rows());
  std::vector<int32_t> behind;
  for (const int32_t row : seen.rows()) {
    if (row >= in_front_) behind.push_back(static_cast<int32_t>(row - in_front_));
  }
  COPPICE_CHECK(seen.size() - std::ssize(behind) == in_front_);  // RulesOf: they are protected
  return TokenSet::Of(std::move(behind), rows());
}

void Stream::Keep(const TokenSet& kept_seen, Place place, const Pass& pass) {
  const TokenSet kept = BehindFront(kept_seen);
  COPPICE_CHECK(kept.size() > 0);
  if (kept.IsAll()) return;
  if (deal_.processes() > 1) return DealAgain(kept, place, pass);
  std::vector<int32_t> dropped;
  size_t next = 0;
  for (int32_t row = 0; row < static_cast<int32_t>(rows()); ++row) {
    if (next < kept.rows().size() && kept.rows()[next] == row) {
      ++next;
    } else {
      dropped.push_back(row);
    }
  }
  Park(dropped, place, pass);
  Compact(kept, kept_seen, pass.backend);
}

void Stream::KeepLastOnly(Backend& be) {
  in_front_ = 0;  // a prefix that has not joined yet is not needed any more
  Compact(TokenSet::None(rows()).UnionLast(1), TokenSet::None(seen_.rows()).UnionLast(1), be);
  deal_ = Deal(1, deal_.processes(), 1);  // process 0's, as it was before
}

void Stream::Compact(const TokenSet& kept, const TokenSet& kept_seen, Backend& be) {
  if (!kept.IsAll()) {
    const MutableTensorView all = hidden();
    be.GatherRows(all, kept.rows(), all.Rows(0, kept.size()));
    for (size_t i = 0; i < kept.rows().size(); ++i)
      positions_[i] = positions_[static_cast<size_t>(kept.rows()[i])];
    positions_.resize(kept.rows().size());
    if (in_front_ > 0) {
      all_positions_.resize(static_cast<size_t>(in_front_));
      all_positions_.insert(all_positions_.end(), positions_.begin(), positions_.end());
    }
  }
  if (prefill()) seen_.KeepRows(kept_seen);
  Show();
}

void Stream::SetDepth(int layers) {
  if (prefill()) return;  // SequenceState::Enter set the full depth, and Park lowers it
  for (size_t row = 0; row + 1 < positions_.size(); ++row) {
    sequence_.depth[static_cast<size_t>(positions_[row])] = layers;
  }
}

std::vector<int32_t> Stream::QueryPositions(ReviveMask mask) const {
  if (prefill() || rows() == 1 || mask == ReviveMask::kCausal) return positions_;
  return std::vector<int32_t>(positions_.size(), positions_.back());
}

}  // namespace coppice
