// A probe: drops one span of the prompt before one layer (file head of drop.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct DropConfig {
  std::vector<PositionSpan> spans = {};  // of positions; ascending, disjoint
  int layer = 1;                         // [1, L - 1]
};

class DropPolicy final : public TokenPolicy {
 public:
  explicit DropPolicy(DropConfig config) : config_(std::move(config)) {}

  LayerPoint FirstChoice() const override { return {config_.layer, false}; }
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;

 private:
  DropConfig config_;
};

MethodInfo DropMethod();

}  // namespace coppice
