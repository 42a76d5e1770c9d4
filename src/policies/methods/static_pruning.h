// Static token pruning (file head of static_pruning.cpp).
#pragma once

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/score_sum.h"

namespace coppice {

struct StaticPruningConfig {
  int layer = 4;           // tokens are dropped before this layer, [1, L - 1]; the layers below it score
  double keep = 0.5;       // share that stays, (0, 1]
  int64_t minimum = 1024;  // shorter prompts run densely
};

class StaticPruningPolicy final : public TokenPolicy {
 public:
  explicit StaticPruningPolicy(const StaticPruningConfig& config) : config_(config), sum_(config.layer) {}

  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  StaticPruningConfig config_;
  ScoreSum sum_;
};

MethodInfo StaticPruningMethod();

}  // namespace coppice
