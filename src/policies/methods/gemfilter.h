// GemFilter: the model's own early layers choose which prompt tokens enter it (head of gemfilter.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/retain.h"

namespace coppice {

struct GemFilterConfig {
  int layer = 13;             // r: the filter layer, 0 to L - 1
  TokenBudget keep = {1024};  // k, with the last token
  int kernel = 5;             // tokens whose scores are averaged, odd
  bool compact = true;        // tokens that enter take positions 0, 1, ...
  int64_t minimum = 1024;     // shorter prompts run densely
};

// (1), for the first pass: takes the scores of layer `layer`, the last of the layers that run, and drops
// nothing.
class FilterWatch final : public TokenPolicy {
 public:
  explicit FilterWatch(int layer) : layer_(layer) {}

  Needs NeedsAt(Phase phase, int layer) const override;
  bool RetainsAt(Phase phase, int layer) const override;
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override;

  // [tokens], after the pass.
  const std::vector<float>& scores() const { return scores_; }

 private:
  int layer_;
  std::vector<float> scores_;
};

class GemFilterPolicy final : public TokenPolicy {
 public:
  // `first_layers` is called once, in Input.
  GemFilterPolicy(const GemFilterConfig& config, FilterScores first_layers);

  PolicyFacts Facts() const override { return {.compact_positions = config_.compact}; }
  TokenSet Input(int64_t tokens, Backend& be) override;
  LayerPoint FirstChoice() const override { return {}; }  // what enters depends on the whole prompt

 private:
  GemFilterConfig config_;
  FilterScores first_layers_;
};

MethodInfo GemFilterMethod();

}  // namespace coppice
