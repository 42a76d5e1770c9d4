#include "eval/attention_mass.h"

#include <algorithm>
#include <utility>

#include "eval/trace_sums.h"
#include "eval/watch_prefill.h"
#include "policies/policy.h"

namespace coppice {

namespace {

// Drops nothing, and records attention mass.
class MassProbe final : public TokenPolicy {
 public:
  Needs NeedsAt(Phase, int) const override { return {.masses = {kMass}, .unit_scores = {}}; }
  TokenSet AfterAttention(const Observation& seen, Backend&) override {
    if (seen.layer + 1 < seen.layers) curves.push_back(MassCurve(seen.AttentionMass(kMass).Row<float>(0)));
    return TokenSet::All(seen.rows());
  }

  std::vector<std::vector<double>> curves;

 private:
  static inline const Needs::Mass kMass{.queries = kMassQueries};
};

}  // namespace

std::vector<std::vector<double>> AttentionMassOf(const Engine& engine, std::span<const int32_t> tokens,
                                                 const std::atomic<bool>* cancelled) {
  // Cuts a prompt that is too long, as RunSample does.
  tokens = tokens.last(std::min(tokens.size(), static_cast<size_t>(engine.context())));
  MassProbe probe;
  WatchPrefill(engine, tokens, probe, cancelled);
  return std::move(probe.curves);
}

}  // namespace coppice
