#include "policies/policy.h"

#include <algorithm>
#include <utility>

namespace coppice {

namespace {

template <typename T>
void MergeInto(std::vector<T>& list, const std::vector<T>& more) {
  for (const T& item : more) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }
}

template <typename List, typename Of>
auto FindScore(List& list, const Of& of) {
  return std::find_if(list.begin(), list.end(), [&](const auto& score) { return score.of == of; });
}

}  // namespace

void Needs::Merge(const Needs& other) {
  MergeInto(masses, other.masses);
  MergeInto(unit_scores, other.unit_scores);
}

int64_t Observation::LastEntered(int64_t count) const {
  const int64_t index = entered_tokens() - std::min(count, entered_tokens());
  if (index == entered_tokens()) return prompt_tokens;
  return entered.empty() ? index : entered[static_cast<size_t>(index)];
}

Observation Observation::Behind(int64_t front, std::span<const int32_t> entered_behind) const {
  const int64_t before = std::lower_bound(positions.begin(), positions.end(), front) - positions.begin();
  Observation behind;
  behind.phase = phase;
  behind.layer = layer;
  behind.layers = layers;
  behind.prompt_tokens = prompt_tokens;
  behind.positions = positions.subspan(static_cast<size_t>(before));
  if (!hidden.empty()) behind.hidden = hidden.Rows(before, hidden.rows - before);
  behind.pause = pause;
  behind.entered = entered_behind;
  for (const Mass& mass : masses_) {
    const TensorView scores = mass.score.view();
    CopyRows(scores.Cols(before, scores.cols - before), behind.AddMass(mass.of, scores.rows));
  }
  return behind;
}

bool Observation::HasMass(const Needs::Mass& mass) const { return FindScore(masses_, mass) != masses_.end(); }

TensorView Observation::AttentionMass(const Needs::Mass& mass) const {
  const auto it = FindScore(masses_, mass);
  COPPICE_CHECK(it != masses_.end());
  return it->score.view();
}

TensorView Observation::UnitScores(const Needs::Units& units) const {
  const auto it = FindScore(unit_scores_, units);
  COPPICE_CHECK(it != unit_scores_.end());
  return it->score.view();
}

void Observation::ClearScores() {
  masses_.clear();
  unit_scores_.clear();
}

MutableTensorView Observation::AddMass(const Needs::Mass& mass, int64_t lists) {
  masses_.push_back({mass, Tensor(DType::kF32, lists, rows())});
  return masses_.back().score.mutable_view();
}

MutableTensorView Observation::AddUnitScores(const Needs::Units& units, int64_t count) {
  unit_scores_.push_back({units, Tensor(DType::kF32, 1, count)});
  return unit_scores_.back().score.mutable_view();
}

void Observation::KeepRows(const TokenSet& kept) {
  if (kept.IsAll()) return;
  unit_scores_.clear();
  for (Mass& mass : masses_) {
    Tensor compact(DType::kF32, mass.score.rows(), kept.size());
    for (int64_t list = 0; list < compact.rows(); ++list) {
      // The function moves rows, and the list has one score per column: view it as a column.
      const TensorView column(mass.score.view().RowBytes(list), DType::kF32, mass.score.cols(), 1);
      coppice::KeepRows(column, kept.rows(),
                        {compact.mutable_view().RowBytes(list), DType::kF32, kept.size(), 1});
    }
    mass.score = std::move(compact);
  }
}

TokenSet TokenPolicy::Input(int64_t tokens, Backend& /*be*/) { return TokenSet::All(tokens); }
std::vector<PositionSpan> TokenPolicy::AlwaysStay(int64_t /*tokens*/) const { return {}; }
Needs TokenPolicy::NeedsAt(Phase /*phase*/, int /*layer*/) const { return {}; }
bool TokenPolicy::ReadsHidden(int /*layer*/) const { return false; }
TokenSet TokenPolicy::BeforeLayer(const Observation& seen, Backend& /*be*/) {
  return TokenSet::All(seen.rows());
}
TokenSet TokenPolicy::AfterAttention(const Observation& seen, Backend& /*be*/) {
  return TokenSet::All(seen.rows());
}
TokenSet TokenPolicy::RunFfn(const Observation& seen, Backend& /*be*/) { return TokenSet::All(seen.rows()); }
bool TokenPolicy::ProbesAttention(int /*layer*/) const { return false; }
TokenSet TokenPolicy::RunAttention(const Observation& seen, Backend& /*be*/) {
  return TokenSet::All(seen.rows());
}
TokenSet TokenPolicy::FillFrom(const Observation& /*seen*/, const TokenSet& ran) {
  return TokenSet::None(ran.universe());
}
bool TokenPolicy::ChoosesPattern(Phase /*phase*/, int /*layer*/) const { return false; }
SparsePattern TokenPolicy::Pattern(const AttentionScene& /*scene*/, Backend& /*be*/) { return {}; }
bool TokenPolicy::RetainsAt(Phase /*phase*/, int /*layer*/) const { return false; }
std::optional<Retained> TokenPolicy::Retain(const Observation& /*seen*/, const CacheScene& /*cache*/,
                                            Backend& /*be*/) {
  return std::nullopt;
}
DecodePoint TokenPolicy::AttendsAt(int /*layer*/) const { return DecodePoint::kNone; }
TokenSet TokenPolicy::Attend(const Observation& /*seen*/, const Candidates& candidates, Backend& /*be*/) {
  return TokenSet::All(static_cast<int64_t>(candidates.positions.size()));
}

}  // namespace coppice
