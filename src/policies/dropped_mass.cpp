#include "policies/dropped_mass.h"

#include <algorithm>
#include <numeric>

namespace coppice {

namespace {

// Without the first 4 positions (sinks): they take most of many heads' mass and are never dropped in
// practice.
const Needs::Mass kLastQuery{.queries = 1, .sink = 4};

class DroppedMassMeter final : public TokenPolicy {
 public:
  DroppedMassMeter(LayerPoint first, std::vector<DroppedShare>* report) : first_(first), report_(report) {}

  Needs NeedsAt(Phase phase, int layer) const override {
    if (phase == Phase::kDecode || layer + 1 < first_.layer) return {};
    return {.masses = {kLastQuery}, .unit_scores = {}};
  }
  TokenSet BeforeLayer(const Observation& seen, Backend& /*be*/) override {
    if (seen.layer >= first_.layer && seen.layer > 0) Note(seen);
    return TokenSet::All(seen.rows());
  }
  TokenSet AfterAttention(const Observation& seen, Backend& /*be*/) override {
    Compare(seen);
    // The last layer has no scores: no choice follows it.
    if (seen.layer + 1 >= first_.layer && seen.layer + 1 < seen.layers) Note(seen);
    return TokenSet::All(seen.rows());
  }
  TokenSet RunFfn(const Observation& seen, Backend& /*be*/) override {
    if (seen.layer + 1 < seen.layers) Compare(seen);
    return TokenSet::All(seen.rows());
  }

 private:
  // Remembers the rows before an answer that may drop some of them.
  void Note(const Observation& seen) {
    const std::span<const float> mass = seen.AttentionMass(kLastQuery).Row<float>(0);
    mass_.assign(mass.begin(), mass.end());
    positions_.assign(seen.positions.begin(), seen.positions.end());
  }
  // Reports the mass of rows dropped since Note.
  void Compare(const Observation& seen) {
    if (mass_.empty() || seen.rows() >= static_cast<int64_t>(positions_.size())) return;
    const double all = std::accumulate(mass_.begin(), mass_.end(), 0.0);
    double kept = 0;
    for (size_t i = 0; i < positions_.size(); ++i) {
      if (std::binary_search(seen.positions.begin(), seen.positions.end(), positions_[i])) kept += mass_[i];
    }
    report_->push_back({seen.layer, all > 0 ? std::clamp(1 - kept / all, 0.0, 1.0) : 0});
    mass_.clear();
  }

  LayerPoint first_;
  std::vector<DroppedShare>* report_;
  std::vector<float> mass_;         // of positions_
  std::vector<int32_t> positions_;  // ascending
};

}  // namespace

std::unique_ptr<TokenPolicy> MakeDroppedMassMeter(LayerPoint first, std::vector<DroppedShare>* report) {
  return std::make_unique<DroppedMassMeter>(first, report);
}

}  // namespace coppice
