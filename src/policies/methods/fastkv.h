// FastKV: one choice of tokens for later layers, another for each layer's cache (file head of fastkv.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "policies/method_info.h"
#include "policies/methods/snapkv.h"
#include "policies/policy.h"

namespace coppice {

struct FastKvConfig {
  int layer = 15;             // t: rows are dropped after this layer; 0 to L - 2
  TokenBudget keep = {0.2};   // of the prompt: rows that go on behind it
  TokenBudget cache = {0.1};  // of the prompt: rows that stay in each layer's cache
  int window = 8;             // number of last rows that score, inside both budgets
  int kernel = 7;             // rows pooled together, odd
  bool max_pool = false;      // else their mean
  int64_t minimum = 1024;     // shorter prompts run densely
};

class FastKvPolicy final : public TokenPolicy {
 public:
  explicit FastKvPolicy(const FastKvConfig& config);

  LayerPoint FirstChoice() const override { return {config_.layer + 1, false}; }
  Needs NeedsAt(Phase phase, int layer) const override;
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override;
  bool RetainsAt(Phase phase, int layer) const override;
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override;

 private:
  FastKvConfig config_;
  SnapKvPolicy evict_;
};

MethodInfo FastKvMethod();

}  // namespace coppice
