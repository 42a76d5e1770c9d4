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

}  // namespace

void Needs::Merge(const Needs& other) {
  MergeInto(mass_queries, other.mass_queries);
  MergeInto(unit_scores, other.unit_scores);
}

TensorView Observation::AttentionMass(int queries) const {
  const auto it =
      std::find_if(masses_.begin(), masses_.end(), [&](const Mass& m) { return m.queries == queries; });
  COPPICE_CHECK(it != masses_.end());
  return it->score.view();
}

TensorView Observation::UnitScores(Needs::Units units) const {
  const auto it = std::find_if(unit_scores_.begin(), unit_scores_.end(),
                               [&](const UnitScore& u) { return u.units == units; });
  COPPICE_CHECK(it != unit_scores_.end());
  return it->score.view();
}

bool Observation::HasUnitScores(Needs::Units units) const {
  return std::any_of(unit_scores_.begin(), unit_scores_.end(),
                     [&](const UnitScore& u) { return u.units == units; });
}

void Observation::ClearScores() {
  masses_.clear();
  unit_scores_.clear();
}

MutableTensorView Observation::AddMass(int queries) {
  masses_.push_back({queries, Tensor(DType::kF32, 1, rows())});
  return masses_.back().score.mutable_view();
}

MutableTensorView Observation::AddUnitScores(Needs::Units units) {
  unit_scores_.push_back({units, Tensor(DType::kF32, 1, (rows() + units.unit - 1) / units.unit)});
  return unit_scores_.back().score.mutable_view();
}

void Observation::KeepRows(const TokenSet& kept, Backend& be) {
  if (kept.IsAll()) return;
  unit_scores_.clear();
  for (Mass& mass : masses_) {
    // One score per column, but GatherRows moves rows: look at the list as a column.
    const TensorView column(mass.score.view().data, DType::kF32, mass.score.cols(), 1);
    Tensor compact(DType::kF32, 1, kept.size());
    be.GatherRows(column, kept.rows(), {compact.mutable_view().data, DType::kF32, kept.size(), 1});
    mass.score = std::move(compact);
  }
}

Needs TokenPolicy::NeedsAt(int /*layer*/) const { return {}; }
TokenSet TokenPolicy::BeforeLayer(const Observation& seen, Backend& /*be*/) {
  return TokenSet::All(seen.rows());
}
TokenSet TokenPolicy::AfterAttention(const Observation& seen, Backend& /*be*/) {
  return TokenSet::All(seen.rows());
}
TokenSet TokenPolicy::RunFfn(const Observation& seen, Backend& /*be*/) { return TokenSet::All(seen.rows()); }

}  // namespace coppice
