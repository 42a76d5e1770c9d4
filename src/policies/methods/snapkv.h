// SnapKV: the prompt's end chooses which of its keys and values stay (file head of snapkv.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/retain.h"

namespace coppice {

struct SnapKvConfig {
  TokenBudget cap = {1024};  // rows that stay in a layer
  int window = 32;           // number of last rows among these, whose queries score the other rows
  int kernel = 5;            // rows pooled together, odd
  bool max_pool = false;     // else their mean
  bool per_kv_head = true;   // else one set for all kv heads
  bool pyramid = false;      // PyramidKV: early layers keep more than late ones
  int beta = 20;             // of the pyramid: the last layer keeps (cap - window) / beta and the window
  int64_t minimum = 1024;    // shorter prompts run densely
};

class SnapKvPolicy final : public TokenPolicy {
 public:
  explicit SnapKvPolicy(const SnapKvConfig& config) : config_(config) {}

  Needs NeedsAt(Phase phase, int layer) const override;
  bool RetainsAt(Phase phase, int layer) const override;
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override;

  // Number of rows that stay in `layer` for a prompt of `tokens`.
  int64_t Budget(int layer, int layers, int64_t tokens) const;

  // Also for FastKV, which chooses rows by the same scores.
  Needs::Mass Mass() const { return {.queries = config_.window, .per_kv_head = config_.per_kv_head}; }
  // Pools the scores of the rows before the window.
  std::vector<float> Pooled(std::span<const float> mass, int64_t window) const;

 private:
  SnapKvConfig config_;
  int64_t tokens_ = 0;  // N: prompt tokens that entered the model
};

MethodInfo SnapKvMethod();

}  // namespace coppice
