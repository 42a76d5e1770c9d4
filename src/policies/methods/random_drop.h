// Random token drop (file head of random_drop.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct RandomDropConfig {
  std::vector<int> layers;           // drop before these layers; empty: before the model
  std::vector<double> keep = {0.5};  // one per layer: a share of the rows that are left, or above 1 a count
  uint64_t seed = 0;
  bool compact = true;     // tokens that enter the model take positions 0, 1, ...
  int64_t minimum = 1024;  // shorter prompts run densely
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
