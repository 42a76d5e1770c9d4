// Static token pruning (file head of static_pruning.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct StaticPruningConfig {
  int layer = 4;      // tokens leave before this layer, [1, L - 1]; the layers below it score
  double keep = 0.5;  // share that stays, (0, 1]
};

class StaticPruningPolicy final : public TokenPolicy {
 public:
  explicit StaticPruningPolicy(const StaticPruningConfig& config) : config_(config) {}

  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  void Accumulate(const Observation& seen);

  StaticPruningConfig config_;
  std::vector<int32_t> positions_;  // of the rows that have been scored in every layer so far
  std::vector<float> sum_;          // [positions_.size()] their scores, summed over layers
};

MethodInfo StaticPruningMethod();

}  // namespace coppice
