// Random token drop (file head of random_drop.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct RandomDropConfig {
  std::vector<int> layers;           // drop before these layers; empty: before the model
  std::vector<double> keep = {0.5};  // share of what is still there, or above 1 a count; one per layer
  uint64_t seed = 0;
  bool compact = true;  // of what enters the model: positions 0, 1, ...
};

class RandomDropPolicy final : public TokenPolicy {
 public:
  explicit RandomDropPolicy(RandomDropConfig config);

  PolicyFacts Facts() const override {
    return {.compact_positions = config_.layers.empty() && config_.compact};
  }
  TokenSet Input(int64_t tokens, Backend& be) override;
  LayerPoint FirstChoice() const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  RandomDropConfig config_;
};

MethodInfo RandomDropMethod();

}  // namespace coppice
