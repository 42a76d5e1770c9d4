#include "policies/dropped_mass.h"

#include <algorithm>
#include <numeric>

namespace coppice {

namespace {

// Without the first 4 positions (sinks): they take most of many heads' mass and are never dropped in
// practice.
const Needs::Mass kMeasured{.queries = 1, .sink = 4};

}  // namespace

Needs DroppedMassMeter::NeedsAt(Phase phase, int layer) const {
  if (phase == Phase::kDecode || layer + 1 < first_.layer) return {};
  return {.masses = {kMeasured}, .unit_scores = {}};
}

void DroppedMassMeter::BeforeLayer(const Observation& seen, const TokenSet& kept) {
  if (seen.layer >= first_.layer && seen.layer > 0) Measure(seen, kept);
}

void DroppedMassMeter::AfterAttention(const Observation& seen, const TokenSet& kept) {
  if (seen.layer + 1 >= first_.layer && seen.layer + 1 < seen.layers) Measure(seen, kept);
}

void DroppedMassMeter::Measure(const Observation& seen, const TokenSet& kept) {
  if (kept.IsAll() || !seen.HasMass(kMeasured)) return;  // it has none behind a layer that does not attend
  const std::span<const float> mass = seen.AttentionMass(kMeasured).Row<float>(0);
  const double all = std::accumulate(mass.begin(), mass.end(), 0.0);
  double stays = 0;
  for (const int32_t row : kept.rows()) stays += mass[static_cast<size_t>(row)];
  report_->push_back({seen.layer, all > 0 ? std::clamp(1 - stays / all, 0.0, 1.0) : 0});
}

}  // namespace coppice
