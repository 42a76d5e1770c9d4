// UniPrefill: dynamic dropping of blocks by top-p (file head of uniprefill.cpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"

namespace coppice {

struct UniPrefillConfig {
  std::vector<int> layers;  // after whose attention blocks are dropped; ascending, in [1, L - 1]
  double p = 0.99;          // share of the attention mass to keep, (0, 1]; 1 keeps everything
  int block = 64;           // rows per block
  int sink = 128;           // positions below this always stay
  int last = 128;           // this many last rows score, and their blocks always stay
  int64_t minimum = 1024;   // shorter prompts run densely
};

class UniPrefillPolicy final : public TokenPolicy {
 public:
  explicit UniPrefillPolicy(UniPrefillConfig config) : config_(std::move(config)) {}

  LayerPoint FirstChoice() const override;
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet AfterAttention(const Observation& seen, Backend& be) override;

 private:
  bool Decides(int layer) const;
  Needs::Mass Mass() const { return {.queries = config_.last}; }
  UniPrefillConfig config_;
};

MethodInfo UniPrefillMethod();

}  // namespace coppice
